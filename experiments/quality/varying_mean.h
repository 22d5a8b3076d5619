// Means whose uncertainty is known only where something varies. This module must not know what is averaged.
#pragma once
#include <span>

#include "experiments/report/statistics.h"

namespace foretoken {

// mean_interval(), but for equal units: resamples of them are all the same, which would say that the mean is certain.
// They do not say how others vary, so the bounds are unknown.
Interval varying_mean(std::span<const Term> units, double least, double most);

}  // namespace foretoken

// The target's distribution under a request's options, computed slowly from the definitions of the options: the
// reference of the laws. It shares only the warp with the engine's computation.
#pragma once
#include <span>
#include <vector>

#include "experiments/conformance/table_model.h"
#include "framework/decode/sequence.h"

namespace foretoken::conformance {

// p(x) after `context`, whose first `prompt` tokens are the prompt.
std::vector<double> target_distribution(const TableModel& target, std::span<const Token> context, int prompt,
                                        const Sampling& sampling);

}  // namespace foretoken::conformance

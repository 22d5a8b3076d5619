// SmoothQuant (Xiao et al. 2022, arXiv 2211.10438): large inputs are made smaller, and their columns larger, so that
// both can be rounded to 8 bits. This module must not know models.
#pragma once
#include <span>
#include <vector>

#include "kernels/formats/format.h"

namespace foretoken {

// s_j = largest_j^alpha / max |W_j|^(1 - alpha), by which the inputs are divided; 1 where one of them is 0. `largest`
// [in]: of |x|; matrices [out, in] share the inputs.
std::vector<float> smoothing_scales(std::span<const Weight> dense, std::span<const float> largest, double alpha);

}  // namespace foretoken

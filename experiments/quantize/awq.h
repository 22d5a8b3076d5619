// AWQ (Lin et al. 2023, arXiv 2306.00978): inputs of large magnitude are made larger and their columns rounded more
// finely; then the greatest weights of a group are clipped where its outputs profit. Scales and clipping are searched
// for on some inputs of the matrices. This module must not know models.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/formats/format.h"

namespace foretoken {

// The nearest scales that a model can have.
using Foldable = std::function<std::vector<float>(std::span<const float>)>;

// The scales of the inputs of matrices that share them: of magnitudes^alpha, alpha in 20 steps from 0 to 1, those with
// the least change of the outputs; all are 1 at 0. `magnitudes` [in]: means of |x|; x: host f32 [rows, in]. Work: 21
// roundings of the matrices, and 21 products of them with x on the device.
std::vector<float> awq_scales(Backend& device, std::span<const Weight> dense, const WeightFormat& format,
                              std::span<const float> magnitudes, const Tensor& x, const Foldable& foldable);

// Rounds a matrix whose weights are cut, in each group, at that one of ten shares of the greatest magnitude (1 down to
// 0.55) whose outputs are nearest to the dense ones. Formats whose scale is shared by several outputs or by more than
// 512 inputs are not cut. `host`: a device in host memory.
Weight awq_rounded(Backend& host, const Weight& dense, const WeightFormat& format, const Tensor& x);

}  // namespace foretoken

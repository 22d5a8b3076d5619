// Scales of the inputs of a layer's products, which change nothing: the inputs are divided by them where they are made,
// by the gain of a norm or by the rows of the matrix before, and the columns that multiply them are multiplied by them.
// And how AWQ and SmoothQuant choose them.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "experiments/quantize/method.h"
#include "kernels/backend.h"
#include "kernels/formats/format.h"

namespace foretoken {

// A product of a layer and what makes its inputs.
struct Fold {
  std::size_t product;  // of Calibration::products()
  std::string maker;    // the module whose gain or rows are divided: "input_layernorm", "mlp.up_proj"
};

// All that a layer of this model allows: the rows of v stand before `o_proj` only where every query has a value of its
// own.
std::vector<Fold> folds_of(const ModelConfig& config);

// The scales [in] of the layer that are nearest to these and can be folded exactly: what the gain of a norm is divided
// by is a number of the gain's type. 1 where the gain is 0.
std::vector<float> foldable(const DenseLayer& layer, const Fold& fold, std::span<const float> scales);

// Folds such scales. Matrices that change become f32.
void fold_into(DenseLayer& layer, const Fold& fold, std::span<const float> scales);

// The matrix with column i multiplied by scales[i], f32.
Weight with_columns(const Weight& dense, std::span<const float> scales);

// SmoothQuant (Xiao et al. 2022, arXiv 2211.10438): large inputs are made smaller, and their columns larger, so that
// both can be rounded to 8 bits. s_j = largest_j^alpha / max |W_j|^(1 - alpha), by which the inputs are divided; 1
// where one of them is 0. `largest` [in]: of |x|; matrices [out, in] share the inputs.
std::vector<float> smoothing_scales(std::span<const Weight> dense, std::span<const float> largest, double alpha);

// The nearest scales that a model can have.
using Foldable = std::function<std::vector<float>(std::span<const float>)>;

// AWQ (Lin et al. 2023, arXiv 2306.00978): inputs of large magnitude are made larger and their columns rounded more
// finely. The scales of the inputs of matrices that share them: of magnitudes^alpha, alpha in 20 steps from 0 to 1,
// those with the least change of the outputs; all are 1 at 0. `magnitudes` [in]: means of |x|; x: host f32 [rows, in].
// Work: 21 roundings of the matrices, and 21 products of them with x on the device.
std::vector<float> awq_scales(Backend& device, std::span<const Weight> dense, const WeightFormat& format,
                              std::span<const float> magnitudes, const Tensor& x, const Foldable& foldable);

// AWQ's second step: rounds a matrix whose weights are cut, in each group, at that one of ten shares of the greatest
// magnitude (1 down to 0.55) whose outputs are nearest to the dense ones. Formats whose scale is shared by several
// outputs or by more than 512 inputs are not cut. `host`: a device in host memory.
Weight awq_rounded(Backend& host, const Weight& dense, const WeightFormat& format, const Tensor& x);

}  // namespace foretoken

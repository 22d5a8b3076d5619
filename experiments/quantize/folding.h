// Scales of the inputs of a layer's products, which change nothing: the inputs are divided by them where they are made,
// by the gain of a norm or by the rows of the matrix before, and the columns that multiply them are multiplied by them.
// This module must not know how scales are chosen or matrices rounded.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "experiments/quantize/dense_model.h"

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

}  // namespace foretoken

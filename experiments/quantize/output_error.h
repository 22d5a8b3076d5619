// How far the outputs of a rounded matrix are from those of the dense one, on rows of a text. This module must not know
// models.
#pragma once
#include <cstdint>
#include <vector>

#include "experiments/quantize/rounding_error.h"
#include "kernels/backend.h"
#include "kernels/formats/format.h"

namespace foretoken {

// Some of the inputs of a product, evenly spread over a text, so that they fit into memory.
class RowSample {
 public:
  static constexpr std::int64_t kMost = 512;

  // Of a text of `tokens` rows.
  RowSample(std::int64_t in, std::int64_t tokens, std::int64_t most = kMost);
  void add(const Tensor& x);                             // host f32 [rows, in]: the next rows of the text
  Tensor rows() const { return kept_.rows(0, count_); }  // host f32

 private:
  Tensor kept_;
  std::int64_t tokens_, most_, seen_ = 0, count_ = 0;
};

// Host f32 [out, in]: what rounding takes off a matrix. Column i of the rounded one is divided by scales[i] first,
// where there are scales.
Tensor weights_lost(const Weight& dense, const Weight& rounded, std::span<const float> scales = {});

// The sum of the squares of x W^T, on the device. x: memory of the device, f32 [rows, in]; `weights`: host f32 [out,
// in].
double squared_outputs(Backend& device, const Tensor& x, const Tensor& weights);

// |X W^T - X' W'^T|^2 and |X W^T|^2, computed on the device; X': the inputs as the rounded matrix reads them, which is
// X where it does not round them. x: host f32 [rows, in].
SquaredError output_error(Backend& device, const Tensor& x, const Weight& dense, const Weight& rounded);

}  // namespace foretoken

// How far a quantized matrix, or its outputs on rows of a text, are from those of the dense one. This module must not
// know where matrices come from.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "kernels/formats/format.h"

namespace foretoken {

struct SquaredError {
  double difference = 0, original = 0;  // sums of squares: of W - W', of W

  double relative() const;  // |W - W'| / |W|; 0 where both are 0
  SquaredError& operator+=(const SquaredError& other);
};

// Both [out, in]; the same for any number of threads.
SquaredError rounding_error(const Weight& dense, const Weight& rounded);

// Some of the inputs of a product, evenly spread over a text of `tokens` rows, so that they fit into memory.
class RowSample {
 public:
  RowSample(std::int64_t in, std::int64_t tokens, std::int64_t most = 512);
  void add(const Tensor& x);                             // host f32 [rows, in]: the next rows of the text
  Tensor rows() const { return kept_.rows(0, count_); }  // host f32

 private:
  Tensor kept_;
  std::int64_t tokens_, most_, seen_ = 0, count_ = 0;
};

Tensor on_host(Backend& device, const Tensor& x);  // a dense copy in its own type
Tensor f32_copy(const Tensor& host);

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

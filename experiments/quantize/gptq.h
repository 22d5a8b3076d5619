// GPTQ (Frantar et al. 2023, arXiv 2210.17323): a matrix is rounded column by column, and what the rounding of one
// changes in the outputs is taken up by the columns that are not rounded yet. This module must not know models.
#pragma once
#include <cstdint>
#include <vector>

#include "experiments/quantize/rounding_error.h"
#include "kernels/formats/format.h"

namespace foretoken {

// Sums of products of a matrix's inputs, over rows of a calibration text.
class InputProducts {
 public:
  explicit InputProducts(std::int64_t in) : in_(in), sums_(std::size_t(in * in), 0.0) {}

  void add(const Tensor& x);  // f32 [rows, in]
  std::int64_t in() const { return in_; }
  const std::vector<double>& sums() const { return sums_; }  // X^T X [in, in]

 private:
  std::int64_t in_;
  std::vector<double> sums_;
};

// |X (W - W')^T|^2 and |X W^T|^2: how far the outputs of the rounded matrix are from those of the dense one.
SquaredError output_error(const Weight& dense, const Weight& rounded, const InputProducts& inputs);

// The scales are those of rounding to nearest (static groups); codes are chosen in the order of the columns. `damping`:
// added to the diagonal of X^T X, as a share of its mean. The same for any number of threads.
Weight gptq(const Weight& dense, const WeightFormat& format, const InputProducts& inputs, double damping,
            const ForShares& shares);

}  // namespace foretoken

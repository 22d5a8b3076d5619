// Sums of products of a matrix's inputs over a text, X^T X, computed on a device. This module must not know models or
// what the sums are for.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace foretoken {

class InputProducts {
 public:
  // `type`: in which the device multiplies: that of the matrix, bf16 or f32. Sums are f32.
  InputProducts(Backend& device, std::int64_t in, DType type);

  void add(const Tensor& x);  // host f32 [rows, in]
  std::int64_t in() const { return in_; }
  // f32 [in, in], whose elements [i, j] with i < j are undefined (the sums are symmetric).
  Tensor sums();

 private:
  void multiply();

  static constexpr std::int64_t kPanel = 1024;  // columns of the sums that are computed together
  static constexpr std::int64_t kRows = 1024;   // of the text that are multiplied together

  Backend& device_;
  std::int64_t in_;
  DType type_;
  Tensor waiting_;              // host f32 [in, kRows]: the rows that are not multiplied yet, transposed
  std::int64_t rows_ = 0;       // of these
  std::vector<Tensor> panels_;  // on the device, f32 [in - p * kPanel, columns]: from the diagonal down
};

}  // namespace foretoken

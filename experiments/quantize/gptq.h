// GPTQ (Frantar et al. 2023, arXiv 2210.17323): a matrix is rounded column by column, and what the rounding of one
// changes in the outputs is taken up by the columns that are not rounded yet. This module must not know models.
//
// With e = w - w' of a row, S the damped sums X^T X in the order of rounding and S = R R^T, R upper triangular, the
// change of the outputs is |e R|^2, and column k of e R depends on the columns before it alone. So the k-th weight is
// rounded from w_k + (sum over j < k of e_j R_jk) / R_kk, which makes its term least. That is GPTQ's rule (Chee et al.
// 2023, arXiv 2307.13304, theorem 6) without the inverse of S, and with the columns before a block it is one product.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/formats/format.h"

namespace foretoken {

// Sums of products of a matrix's inputs over a text, X^T X, computed on a device.
class InputProducts {
 public:
  // `type`: in which the device multiplies: that of the matrix, bf16 or f32. Sums are f32.
  InputProducts(Backend& device, std::int64_t in, DType type);

  void add(const Tensor& x);  // host f32 [rows, in]
  // f32 [in, in], whose elements [i, j] with i < j are undefined (the sums are symmetric).
  Tensor sums();

 private:
  void multiply();

  Backend& device_;
  std::int64_t in_;
  DType type_;
  Tensor waiting_;              // host f32: the rows that are not multiplied yet, transposed
  std::int64_t rows_ = 0;       // of these
  std::vector<Tensor> panels_;  // on the device, some columns of the sums each, from the diagonal down
};

// Replaces the lower triangle of a symmetric f32 [n, n] in the memory of `host`, a device in host memory, by that of
// its Cholesky factor L, L L^T = a; what is above the diagonal is undefined before and after. False where `a` is not
// positive definite to the precision of f32. Work: n^3 / 3 multiplications and additions together, all but n^2 of them
// in Backend::linear.
bool factorize(Backend& host, Tensor a);

// What GPTQ needs of the inputs of a matrix.
class GptqFactor {
 public:
  // `sums`: f32 [in, in], the lower triangle of X^T X. `damping`: added to its diagonal, as a share of its mean.
  // `by_size`: columns are rounded in descending order of the diagonal, the earlier first among equals, else as they
  // are. Sums that are not finite, or too much alike, are an Error. `host`: a device in host memory.
  GptqFactor(Backend& host, const Tensor& sums, double damping, bool by_size);

  const std::vector<std::int32_t>& order() const { return order_; }  // of rounding
  // R_jk / R_kk for j <= k, by places in the order.
  float share(std::int64_t j, std::int64_t k) const {
    const std::int64_t last = std::int64_t(order_.size()) - 1;
    return lower_.row<float>(last - j)[last - k] / lower_.row<float>(last - k)[last - k];
  }

 private:
  std::vector<std::int32_t> order_;
  Tensor lower_;  // f32 [in, in]: R with rows and columns reversed
};

// The scales are those of rounding to nearest (static groups); codes are chosen in the order of the factor. The same
// for any number of threads.
Weight gptq(Backend& host, const Weight& dense, const WeightFormat& format, const GptqFactor& factor,
            const ForShares& shares);

[[noreturn]] void refuse_inputs();  // an Error: they are not finite

}  // namespace foretoken

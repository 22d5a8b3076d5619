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

// What GPTQ needs of the inputs of a matrix.
class GptqFactor {
 public:
  // `sums`: f32 [in, in], the lower triangle of X^T X. `damping`: added to its diagonal, as a share of its mean.
  // `by_size`: columns are rounded in descending order of the diagonal, the earlier first among equals, else as they
  // are. Sums that are not finite, or too much alike, are an Error. `host`: a device in host memory.
  GptqFactor(Backend& host, const Tensor& sums, double damping, bool by_size);

  std::int64_t in() const { return std::int64_t(order_.size()); }
  const std::vector<std::int32_t>& order() const { return order_; }  // of rounding
  // R_jk / R_kk for j <= k, by places in the order.
  float share(std::int64_t j, std::int64_t k) const {
    const std::int64_t last = in() - 1;
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

}  // namespace foretoken

// Products of numbers of 8 bits by warpgroup products of boxes, on architecture 90a, for any number of rows. This
// header must not know how inputs are rounded.
#pragma once
#include "kernels/cuda/products/rounded_matrix.cuh"

namespace foretoken {

// Whether rounded_boxes supports the matrix: no zero points, inputs a multiple of 128, groups of a multiple of 128,
// outputs a multiple of 8.
bool can_multiply_boxes(const CudaBackend& backend, const RoundedMatrix& matrix);

// y = x W^T + b, or y += that, or that gated (outputs a multiple of 16). y: aligned to four outputs. Integers: exact
// sums of each group, so the host's bits. FP8: a row's bits do not depend on the number of rows. Tensor cores cut the
// terms of 32 products, and the sum so far, 13 bits behind the greatest: at worst a sum of 128 terms differs from the
// exact one by 2^-6 of its greatest term; of inputs with outliers it was less than 2^-10 of the sum of their
// magnitudes.
void multiply_boxes(const CudaBackend& backend, const ProductResult& result, const RoundedRows& x,
                    const RoundedMatrix& matrix);

}  // namespace foretoken

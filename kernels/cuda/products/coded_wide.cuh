// Products of more than 64 rows with packed matrices, on architecture 90a. This header must not know what is
// multiplied.
#pragma once
#include "kernels/cuda/products/packed_matrix.cuh"

namespace foretoken {

// Whether coded_wide_product supports this, for any number of rows: `in` a multiple of 128 for each slice of
// splits_of(), `out` a multiple of 4.
bool can_widen_codes(const CudaBackend& backend, const PackedMatrix& matrix);

// Whether it is estimated to take less time than unpacking the matrix and multiplying it by the routes of dense ones.
bool widens_codes(const CudaBackend& backend, const PackedMatrix& matrix, std::int64_t rows);

// x bf16 [rows, in], aligned to 16 bytes; y aligned to four outputs. Gated: out a multiple of 16, one slice.
void coded_wide_product(CudaProducts& products, const Epilogue& to, const Tensor& x, const PackedMatrix& matrix);

}  // namespace foretoken

// Rows of inputs rounded to integers of 8 bits or to FP8 (kernels/formats/activations/activation_format.h), with the
// host's bits. This header must not know which matrix they are multiplied by.
#pragma once
#include "kernels/cuda/products/products.cuh"

namespace foretoken {

struct RoundedRows {
  Tensor numbers;  // [rows, in]: i8, or u8 (e4m3)
  Tensor scales;   // f32 [rows]: 0 for a row that becomes 0, NaN for one that is not finite
  // Of a format that keeps outliers apart: i32 [rows], how many; i32 [rows, in], their inputs, ascending; f32 [rows,
  // in], their values. Else absent.
  Tensor counts = {}, places = {}, values = {};
};

// The input of a product with `w`: x (f32 or bf16), or its norm; rounded to bf16 first.
RoundedRows rounded_rows(CudaBackend& backend, const ProductInput& input, const Weight& w);

}  // namespace foretoken

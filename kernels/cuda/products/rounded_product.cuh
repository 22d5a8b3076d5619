// Products with rounded inputs (kernels/formats/activations/activation_format.h), by simple kernels: integers have the
// host's bits. This header must not know which layer a matrix belongs to.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {

// Codes and their scales on the device, beside the bf16 matrix that embeddings read. Bytes on the device: out * in * 3.
struct PreparedRounded final : PreparedMatrix {
  PreparedRounded(Tensor dense, Weight w, Tensor table)
      : PreparedMatrix(std::move(dense)), weight(std::move(w)), numbers(std::move(table)) {}
  std::int64_t bytes() const override { return weight.bytes(); }
  Weight weight;   // codes, scales, zeros and order, without bias
  Tensor numbers;  // f32, by code
};

// `dense`: the same weight as it is prepared where inputs are not rounded.
Weight prepare_rounded(CudaBackend& backend, const Weight& weight, const Weight& dense);
// y = x W^T + b, or y += that. y f32 [rows, out], x bf16 [rows, in], dense.
void rounded_product(CudaBackend& backend, const Tensor& y, const Tensor& x, const Weight& w, bool adds);

}  // namespace foretoken

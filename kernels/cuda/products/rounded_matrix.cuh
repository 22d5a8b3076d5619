// A matrix whose inputs are rounded (kernels/formats/activations/activation_format.h): its codes in 8 bits, as integers
// or FP8. This header must not know which layer a matrix belongs to.
#pragma once
#include "kernels/cuda/products/cuda_matrix.cuh"
#include "kernels/cuda/products/rounded_rows.cuh"

namespace foretoken {

// Bytes on the device: out * in, and the scales.
class RoundedMatrix final : public CudaMatrix {
 public:
  RoundedMatrix(CudaBackend& backend, const Weight& weight);

  std::int64_t bytes() const override;
  DType type() const override { return DType::bf16; }
  bool gates(CudaProducts& products, const ProductInput& input) const override;
  void multiply(CudaProducts& products, const ProductResult& result, const ProductInput& input) const override;
  void embed(CudaBackend& backend, const Tensor& tokens, const Tensor& x) const override;

  std::int64_t groups() const { return weight_.in / weight_.group; }
  const Weight& weight() const { return weight_; }
  const Tensor& codes() const { return codes_; }
  // f32 [groups, out]
  const Tensor& scales() const { return scales_; }

 private:
  Weight weight_;  // zeros and order on the device; without values, scales and bias
  Tensor codes_;   // [out, in]: i8, numbers less the middle code; or u8 (e4m3)
  Tensor scales_;
  bool boxes_;  // products of boxes (rounded_boxes.cuh) support it
};

}  // namespace foretoken

// The end of a product p = x W^T: y = p + b, y += that, or, gated, y = silu(first half of that) * second half, y bf16.
// All kernels of products write their results through it, but for the wide product, which has the same arithmetic in
// wide_output.cuh. This header must not know how sums are computed.
#pragma once
#include "kernels/cuda/elementwise/elementwise.cuh"

namespace foretoken {

struct Epilogue {
  float* y = nullptr;  // one of y and y_bf16: [rows, out]
  Bf16* y_bf16 = nullptr;
  std::int64_t y_stride = 0;
  const float* bias = nullptr;  // [out], gated [2 * out]; null: 0
  int rows = 0, out = 0;
  bool adds = false, gated = false;
  // Of a sum of numbers of rounded inputs: f32 [rows], [out] (gated [2 * out]); null: sums are scaled already.
  const float *row_scales = nullptr, *out_scales = nullptr;

  Epilogue() = default;
  Epilogue(const Tensor& to, const Tensor& b, bool adds_to_y, bool gates = false)
      : y_stride(to.row_stride()), rows(int(to.dim(0))), out(int(to.dim(1))), adds(adds_to_y), gated(gates) {
    if (to.dtype() == DType::f32)
      y = to.data<float>();
    else
      y_bf16 = to.data<Bf16>();
    if (b) bias = b.data<float>();
  }

#ifdef __CUDACC__
  __device__ std::int64_t at(int r, int o) const { return r * y_stride + o; }

  // The number that a sum stands for; `o` of 2 * out where gated. Every operation is rounded, as on the host.
  static __device__ float scaled_by(float sum, float row_scale, float out_scale) {
    return __fadd_rn(0, __fmul_rn(sum, __fmul_rn(row_scale, out_scale)));
  }
  __device__ float scaled(float sum, int r, int o) const {
    return row_scales == nullptr ? sum : scaled_by(sum, row_scales[r], out_scales[o]);
  }
  __device__ float scaled(int sum, int r, int o) const { return scaled(__int2float_rn(sum), r, o); }

  // The previous y, where the product is added to it. Other kernels may have written it: not from L1.
  __device__ float previous(int r, int o) const { return adds ? __ldcg(y + at(r, o)) : 0; }
  __device__ float4 previous_four(int r, int o) const {
    return adds ? __ldcg(reinterpret_cast<const float4*>(y + at(r, o))) : float4{};
  }

  __device__ float biased(float p, int o) const { return bias != nullptr ? p + bias[o] : p; }
  __device__ void write(int r, int o, float p, float before) const {
    const float v = biased(p, o);
    if (y == nullptr)
      from_float(y_bf16[at(r, o)], v);
    else
      y[at(r, o)] = adds ? before + v : v;
  }
  // The bias of outputs o to o + 3; p + that.
  __device__ float4 bias_four(int o) const {
    return bias != nullptr ? float4{bias[o], bias[o + 1], bias[o + 2], bias[o + 3]} : float4{};
  }
  __device__ float4 biased(float4 p, float4 b) const {
    return bias != nullptr ? float4{p.x + b.x, p.y + b.y, p.z + b.z, p.w + b.w} : p;
  }
  // Outputs o to o + 3, aligned.
  __device__ void write_four(int r, int o, float4 p, float4 before) const {
    p = biased(p, bias_four(o));
    if (y == nullptr)
      store_four(y_bf16 + at(r, o), p);
    else if (adds)
      store_four(y + at(r, o), {before.x + p.x, before.y + p.y, before.z + p.z, before.w + p.w});
    else
      store_four(y + at(r, o), p);
  }
  // The result of outputs o and out + o. Both factors are rounded to bf16, as results of separate products would be.
  static __device__ float gated_of(float gate, float up) { return silu(as_bf16(gate)) * as_bf16(up); }
  __device__ void write_gated(int r, int o, float gate, float up) const {
    from_float(y_bf16[at(r, o)], gated_of(biased(gate, o), biased(up, out + o)));
  }
#endif
};

}  // namespace foretoken

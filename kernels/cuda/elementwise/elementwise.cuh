// Device functions that elementwise operations share with the products that fuse them, and checks of shapes. This
// header must not know the order of operations.
#pragma once
#include "kernels/cuda/device.cuh"

namespace foretoken {

// Four consecutive numbers, 8 or 16 bytes, at an address aligned to that size.
__device__ inline float4 load_four(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ inline float4 widened(uint2 u) {  // four bf16
  return {__uint_as_float(u.x << 16), __uint_as_float(u.x & 0xffff0000u), __uint_as_float(u.y << 16),
          __uint_as_float(u.y & 0xffff0000u)};
}
__device__ inline float4 load_four(const Bf16* p) { return widened(*reinterpret_cast<const uint2*>(p)); }
__device__ inline unsigned two_bf16(float a, float b) {
  const __nv_bfloat162 t = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const unsigned*>(&t);
}
__device__ inline float as_bf16(float v) { return to_float(__float2bfloat16_rn(v)); }
// Eight bf16, 16 bytes.
struct Eight {
  float4 low, high;
};
__device__ inline Eight load_eight(const Bf16* p) {
  const uint4 u = __ldcg(reinterpret_cast<const uint4*>(p));
  return {widened(uint2{u.x, u.y}), widened(uint2{u.z, u.w})};
}
__device__ inline void store_four(float* p, float4 v) { *reinterpret_cast<float4*>(p) = v; }
__device__ inline void store_four(Bf16* p, float4 v) {
  *reinterpret_cast<uint2*>(p) = {two_bf16(v.x, v.y), two_bf16(v.z, v.w)};
}
__device__ inline void store_eight(Bf16* p, const Eight& v) {
  *reinterpret_cast<uint4*>(p) = {two_bf16(v.low.x, v.low.y), two_bf16(v.low.z, v.low.w), two_bf16(v.high.x, v.high.y),
                                  two_bf16(v.high.z, v.high.w)};
}

// About 8 instructions, where exact division and exponential would take 35. Relative error: a few units in the last
// place of f32 near zero; that of __expf grows with |gate|, as gate * log2(e) is rounded before it becomes an exponent.
__device__ inline float silu(float gate) { return __fdividef(gate, 1.0f + __expf(-gate)); }

// x of rank 2 whose rows may be handled four columns at a time.
inline bool in_fours(const Tensor& x) {
  return x.dim(x.rank() - 1) % 4 == 0 && x.row_stride() % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(x.raw()) % std::size_t(4 * size_of(x.dtype())) == 0;
}

// Throws Error unless `x` has rank 2 and `width` columns and lies on the device.
inline void expect_width(const char* operation, const Tensor& x, std::int64_t width) {
  if (x.rank() == 2 && x.dim(1) == width && x.device().kind == Device::Kind::cuda) return;
  throw Error(std::string("cuda: ") + operation + " needs [rows, " + std::to_string(width) + "] on the GPU, not " +
              name_of(x.dtype()) + ' ' + x.shape().text() +
              (x.device().kind == Device::Kind::cuda ? "" : " on the host"));
}

}  // namespace foretoken

// The arguments of rope_store, of any type of cache. This header must not know how they are computed.
#pragma once
#include <cstdint>

#include "kernels/cuda/attention/rotation.cuh"

namespace foretoken {

// Device pointers of one call. A null `pool`: nothing is stored. Null `frequencies`: nothing is rotated. A null `q` has
// no heads (the attention kernel rotates the queries).
template <class T> struct RopeStore {
  T *q, *k;
  const T* v;
  std::int64_t q_stride, k_stride, v_stride;
  int heads, kv_heads, head_size;
  const float* frequencies;
  const std::int32_t *positions, *slots, *owner, *tables;
  std::int64_t table_width, page_bytes, keys, values, key_scales, value_scales;
  int page_rows;
  unsigned char* pool;
};

// The same in a quantized cache, of pages i8 or e4m3 (store_codes.cu); `rows` is not 0.
void store_codes(const char* operation, const RopeStore<float>& a, int rows, DType pages, cudaStream_t stream,
                 bool dependent_launch);
void store_codes(const char* operation, const RopeStore<Bf16>& a, int rows, DType pages, cudaStream_t stream,
                 bool dependent_launch);

}  // namespace foretoken

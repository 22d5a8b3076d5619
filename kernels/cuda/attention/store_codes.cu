// rope_store into a quantized cache: as rope_store.cu, and each head of k and v becomes codes with a scale
// (kernels/cache_codes.h). A warp takes a head at a time: it rotates the numbers in place and finds their greatest
// magnitude, then reads them again. Bytes: those of rope_store.cu, and the heads of k and v once more.
#include "kernels/cuda/attention/cache_codes.cuh"
#include "kernels/cuda/attention/rope_store.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

constexpr int kWarps = 8;

__device__ inline float in_bf16(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }

// The rotated head; returns the greatest magnitude of this lane's numbers in bf16, NaN where one is NaN.
template <class T> __device__ float rotate_head(T* x, int half, const Rotation* by, int lane) {
  float most = 0;
  for (int i = lane; i < half; i += 32) {
    float2 pair = {to_float(x[i]), to_float(x[i + half])};
    if (by != nullptr) {
      pair = rotated(pair.x, pair.y, by[i]);
      from_float(x[i], pair.x), from_float(x[i + half], pair.y);
    }
    most = greater_magnitude(most, greater_magnitude(in_bf16(to_float(x[i])), in_bf16(to_float(x[i + half]))));
  }
  return most;
}

// Stores a head of n numbers, of which a lane has those whose index modulo n / 2 is its own modulo 32.
template <Coding kCoding, class T>
__device__ void store_head(const T* x, int half, float most, unsigned char* codes, float* scale, int lane) {
  for (int i = 1; i < 32; i *= 2) most = greater_magnitude(most, __shfl_xor_sync(~0u, most, i));
  const float s = scale_of_head<kCoding>(most);
  const RowDivider<kCoding> divider = divider_of_head<kCoding>(s);
  for (int i = lane; i < half; i += 32)
    codes[i] = divider.one(in_bf16(to_float(x[i]))), codes[i + half] = divider.one(in_bf16(to_float(x[i + half])));
  if (lane == 0) *scale = s;
}

// Blocks (row, y): those of a row share its heads.
template <Coding kCoding, class T> __global__ void __launch_bounds__(32 * kWarps)
    rope_store_codes(const RopeStore<T> a) {
  extern __shared__ Rotation rotations[];  // [half]
  let_next_kernel_start();
  const int row = int(blockIdx.x), half = a.head_size / 2, warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int slot = a.slots[row], at = slot % a.page_rows;
  unsigned char* const page =
      a.pool + std::int64_t(a.tables[a.owner[row] * a.table_width + slot / a.page_rows]) * a.page_bytes;
  const Rotation* const by = a.frequencies != nullptr ? rotations : nullptr;
  if (by != nullptr) {
    for (int i = int(threadIdx.x); i < half; i += int(blockDim.x))
      rotations[i] = rotation_of(a.positions[row], a.frequencies[i]);
    __syncthreads();
  }
  wait_for_previous_kernels();  // the layout may be read before: see CudaBackend::reads_early
  const int of_q = by != nullptr ? a.heads : 0;
  for (int n = int(blockIdx.y) * kWarps + warp; n < of_q + 2 * a.kv_heads; n += int(gridDim.y) * kWarps) {
    const int head = n < of_q ? n : (n - of_q) % a.kv_heads;
    if (n < of_q) {
      (void)rotate_head(a.q + row * a.q_stride + head * a.head_size, half, by, lane);
      continue;
    }
    const bool key = n < of_q + a.kv_heads;
    T* const x = (key ? a.k + row * a.k_stride : const_cast<T*>(a.v) + row * a.v_stride) + head * a.head_size;
    const float most = rotate_head(x, half, key ? by : nullptr, lane);
    const std::int64_t line = std::int64_t(head) * a.page_rows + at;
    store_head<kCoding>(x, half, most, page + (key ? a.keys : a.values) + line * a.head_size,
                        reinterpret_cast<float*>(page + (key ? a.key_scales : a.value_scales)) + line, lane);
  }
}

template <class T> void go(const char* operation, const RopeStore<T>& a, int rows, DType pages, cudaStream_t stream,
                           bool dependent_launch) {
  // A warp that takes one head after another takes the time of their latencies: where rows are few, more blocks cost
  // less.
  constexpr int kFewRows = 64;
  const int heads = (a.frequencies != nullptr ? a.heads : 0) + 2 * a.kv_heads;
  launch_kernel(operation, stream,
                {dim3(unsigned(rows), rows <= kFewRows ? blocks_for(heads, kWarps) : 1), 32 * kWarps,
                 std::size_t(rope_store_bytes(a.head_size)), 1, dependent_launch},
                pages == DType::i8 ? rope_store_codes<Coding::integers, T> : rope_store_codes<Coding::e4m3, T>, a);
}

}  // namespace

void store_codes(const char* operation, const RopeStore<float>& a, int rows, DType pages, cudaStream_t stream,
                 bool dependent_launch) {
  go(operation, a, rows, pages, stream, dependent_launch);
}
void store_codes(const char* operation, const RopeStore<Bf16>& a, int rows, DType pages, cudaStream_t stream,
                 bool dependent_launch) {
  go(operation, a, rows, pages, stream, dependent_launch);
}

}  // namespace foretoken

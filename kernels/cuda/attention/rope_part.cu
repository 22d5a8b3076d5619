// The rotary embedding of the first 2 n numbers of each head, with a factor of cosines and sines (Phi-4-mini:
// LongRoPE): pairs (i, i + n) of q and k are rotated by positions[row] * frequencies[i] in place. q [rows, heads *
// head_size], k [rows, kv_heads * head_size], f32 or bf16. Bytes: rows * 2 n * (2 heads + 2 kv_heads) * (2 or 4). Heads
// that are rotated as a whole, without a factor: rope_store.cu, and the attention kernels themselves.
#include "kernels/cuda/attention/rotation.cuh"
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

constexpr int kPartThreads = 256;

template <class T> struct RopePart {
  T *q, *k;
  std::int64_t q_stride, k_stride;
  int heads, kv_heads, head_size, pairs;
  const float* frequencies;
  const std::int32_t* positions;
  float factor;
};

// One block a row.
template <class T> __global__ void __launch_bounds__(kPartThreads) rope_part_kernel(const RopePart<T> a) {
  extern __shared__ Rotation rotations[];  // [pairs]
  let_next_kernel_start();
  const int row = int(blockIdx.x);
  for (int i = int(threadIdx.x); i < a.pairs; i += kPartThreads) {
    const Rotation by = rotation_of(a.positions[row], a.frequencies[i]);
    rotations[i] = {by.cosine * a.factor, by.sine * a.factor};
  }
  __syncthreads();
  wait_for_previous_kernels();  // the layout may be read before: see CudaBackend::reads_early
  for (int n = int(threadIdx.x); n < (a.heads + a.kv_heads) * a.pairs; n += kPartThreads) {
    const int head = n / a.pairs, i = n % a.pairs;
    T* const x = head < a.heads ? a.q + row * a.q_stride + head * a.head_size + i
                                : a.k + row * a.k_stride + (head - a.heads) * a.head_size + i;
    const float2 pair = rotated(to_float(x[0]), to_float(x[a.pairs]), rotations[i]);
    from_float(x[0], pair.x);
    from_float(x[a.pairs], pair.y);
  }
}

}  // namespace

bool rotates_plainly(const RotaryRules& rotation, int head_size) {
  return rotation.factor == 1 && rotation.frequencies.dim(0) == head_size / 2;
}

void rope_part(CudaBackend& backend, const Tensor& q, const Tensor& k, const Layout& layout,
               const RotaryRules& rotation, int head_size) {
  const std::int64_t pairs = rotation.frequencies.dim(0);
  if (2 * pairs > head_size)
    throw Error("cuda: rope: " + std::to_string(pairs) + " frequencies of heads of " + std::to_string(head_size) +
                " numbers");
  if (layout.rows == 0) return;
  with_type("rope", k.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    RopePart<T> a = {};
    if (q) {
      a.q = q.data<T>();
      a.q_stride = q.row_stride();
      a.heads = int(q.dim(1)) / head_size;
    }
    a.k = k.data<T>();
    a.k_stride = k.row_stride();
    a.kv_heads = int(k.dim(1)) / head_size;
    a.head_size = head_size;
    a.pairs = int(pairs);
    a.frequencies = rotation.frequencies.data<float>();
    a.positions = layout.positions.data<std::int32_t>();
    a.factor = rotation.factor;
    launch_kernel(
        "rope", backend.cuda_stream(),
        {dim3(unsigned(layout.rows)), kPartThreads, std::size_t(rope_store_bytes(head_size)), 1, backend.reads_early()},
        rope_part_kernel<T>, a);
  });
}

}  // namespace foretoken

// rope_store: pairs (i, i + half) of every head of q and k are rotated by positions[row] * frequencies[i], in place;
// then k and v of the row are stored in its slot. q [rows, heads * head_size], k and v [rows, kv_heads * head_size],
// f32 or bf16; pages f32 or bf16 (codes: store_codes.cu). Bytes: rows * head_size * (2 heads + 2 kv_heads) * size for q
// and k, and 2 * rows * kv_heads * head_size * (size + page size).
#include "kernels/cuda/attention/rope_store.cuh"
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

template <int N> struct Numbers {
  float at[N];
};
template <int N, class T> __device__ Numbers<N> load(const T* p) {
  if constexpr (N == 4) {
    const float4 v = load_four(p);
    return {v.x, v.y, v.z, v.w};
  } else {
    return {to_float(*p)};
  }
}
template <int N, class T> __device__ void store(T* p, const Numbers<N>& v) {
  if constexpr (N == 4)
    store_four(p, {v.at[0], v.at[1], v.at[2], v.at[3]});
  else
    from_float(*p, v.at[0]);
}
template <class T> __device__ float as_stored(float x) {  // x rounded to T
  T t;
  from_float(t, x);
  return to_float(t);
}

// Rotates N pairs, each by its own rotation; the results are rounded to T.
template <class T, int N> __device__ __forceinline__ void rotate(Numbers<N>& one, Numbers<N>& two, const Rotation* by) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float2 pair = rotated(one.at[j], two.at[j], by[j]);
    one.at[j] = as_stored<T>(pair.x), two.at[j] = as_stored<T>(pair.y);
  }
}

// Sets `keys` and `values` to where the row's key and value of the first kv head are stored.
template <class T, class P>
__device__ __forceinline__ void find_slot(const RopeStore<T>& a, int row, P*& keys, P*& values) {
  const int slot = a.slots[row];
  unsigned char* const page =
      a.pool + std::int64_t(a.tables[a.owner[row] * a.table_width + slot / a.page_rows]) * a.page_bytes;
  keys = reinterpret_cast<P*>(page + a.keys) + slot % a.page_rows * a.head_size;
  values = reinterpret_cast<P*>(page + a.values) + slot % a.page_rows * a.head_size;
}

// One block a row. N pairs at once. T: activations, P: pages.
template <int N, class T, class P> __global__ void __launch_bounds__(256) rope_store_kernel(const RopeStore<T> a) {
  extern __shared__ Rotation rotations[];  // [half]
  let_next_kernel_start();
  const int row = int(blockIdx.x), half = a.head_size / 2;
  P *keys = nullptr, *values = nullptr;
  if (a.pool != nullptr) find_slot(a, row, keys, values);
  const std::int64_t plane = std::int64_t(a.page_rows) * a.head_size;  // numbers between two heads
  if (a.frequencies != nullptr) {
    for (int i = int(threadIdx.x); i < half; i += int(blockDim.x))
      rotations[i] = rotation_of(a.positions[row], a.frequencies[i]);
    __syncthreads();
  }
  wait_for_previous_kernels();  // the layout may be read before: see CudaBackend::reads_early
  const int pairs = half / N, of_q = a.frequencies != nullptr ? a.heads * pairs : 0, of_k = a.kv_heads * pairs,
            of_v = a.pool != nullptr ? 2 * of_k : 0;
  for (int n = int(threadIdx.x); n < of_q + of_k + of_v; n += int(blockDim.x)) {
    if (n >= of_q + of_k) {  // an item of v
      const int at = (n - of_q - of_k) * N, head = at / a.head_size, i = at % a.head_size;
      store<N>(values + head * plane + i, load<N>(a.v + row * a.v_stride + at));
      continue;
    }
    const bool key = n >= of_q;
    const int m = key ? n - of_q : n, head = m / pairs, i = m % pairs * N;
    T* const x = (key ? a.k + row * a.k_stride : a.q + row * a.q_stride) + head * a.head_size + i;
    Numbers<N> one = load<N>(x), two = load<N>(x + half);
    if (a.frequencies != nullptr) {
      rotate<T>(one, two, rotations + i);
      store<N>(x, one), store<N>(x + half, two);
    }
    if (key && keys != nullptr) store<N>(keys + head * plane + i, one), store<N>(keys + head * plane + half + i, two);
  }
}

template <class T> RopeStore<T> arguments(const Tensor& q, const Tensor& k, const Layout& layout, int head_size) {
  RopeStore<T> a = {};
  a.k = k.data<T>(), a.k_stride = k.row_stride(), a.kv_heads = int(k.dim(1)) / head_size, a.head_size = head_size;
  if (q) a.q = q.data<T>(), a.q_stride = q.row_stride(), a.heads = int(q.dim(1)) / head_size;
  a.positions = layout.positions.data<std::int32_t>(), a.slots = layout.slots.data<std::int32_t>(),
  a.owner = layout.owner.data<std::int32_t>();
  a.tables = layout.tables.data<std::int32_t>(), a.table_width = layout.tables ? layout.tables.row_stride() : 0;
  return a;
}

template <class T> void add_pages(RopeStore<T>& a, const Tensor& v, const KvLayer& kv) {
  a.v = v.data<T>(), a.v_stride = v.row_stride();
  a.pool = kv.pool.data<unsigned char>(), a.page_bytes = kv.pool.row_stride(), a.keys = kv.keys, a.values = kv.values,
  a.key_scales = kv.key_scales, a.value_scales = kv.value_scales, a.page_rows = kv.page_rows;
}

bool fours(const Tensor& t, int head_size) { return !t || (head_size % 8 == 0 && in_fours(t)); }

template <class T>
void go(CudaBackend& backend, const char* operation, const RopeStore<T>& a, int rows, bool wide, DType pages) {
  if (rows == 0) return;
  const bool dependent_launch = backend.reads_early();
  if (has_scales(pages)) return store_codes(operation, a, rows, pages, backend.cuda_stream(), dependent_launch);
  with_type(operation, pages, [&](auto* type) {
    using P = std::remove_pointer_t<decltype(type)>;
    const bool aligned = wide && (a.pool == nullptr || (a.page_bytes | a.keys | a.values) % 16 == 0);
    launch_kernel(operation, backend.cuda_stream(),
                  {dim3(unsigned(rows)), 256, std::size_t(rope_store_bytes(a.head_size)), 1, dependent_launch},
                  aligned ? rope_store_kernel<4, T, P> : rope_store_kernel<1, T, P>, a);
  });
}

void expect_same(const char* operation, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype())
    throw Error(std::string("cuda: ") + operation + " of " + name_of(a.dtype()) + " beside " + name_of(b.dtype()) +
                "; both must be the same");
}

}  // namespace

void CudaBackend::rope(Tensor q, Tensor k, const Layout& layout, const RotaryRules& rotation, int head_size) {
  enter();
  expect_same("rope", q, k);
  if (!rotates_plainly(rotation, head_size)) return rope_part(*this, q, k, layout, rotation, head_size);
  with_type("rope", k.dtype(), [&](auto* type) {
    auto a = arguments<std::remove_pointer_t<decltype(type)>>(q, k, layout, head_size);
    a.frequencies = rotation.frequencies.data<float>();
    go(*this, "rope", a, layout.rows, fours(q, head_size) && fours(k, head_size), DType::f32);
  });
}

void CudaBackend::store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) {
  enter();
  expect_same("store", k, v);
  with_type("store", k.dtype(), [&](auto* type) {
    auto a = arguments<std::remove_pointer_t<decltype(type)>>({}, k, layout, kv.head_size);
    add_pages(a, v, kv);
    go(*this, "store", a, layout.rows, fours(v, kv.head_size) && fours(k, kv.head_size), kv.dtype);
  });
  written(kv);
}

void CudaBackend::rope_store(Tensor q, Tensor k, const Tensor& v, const KvLayer& kv, const Layout& layout,
                             const RotaryRules& rotation) {
  enter();
  if (q) expect_same("rope_store", q, k);
  expect_same("rope_store", k, v);
  if (!rotates_plainly(rotation, kv.head_size)) {
    rope_part(*this, q, k, layout, rotation, kv.head_size);
    return store(k, v, kv, layout);
  }
  with_type("rope_store", k.dtype(), [&](auto* type) {
    auto a = arguments<std::remove_pointer_t<decltype(type)>>(q, k, layout, kv.head_size);
    a.frequencies = rotation.frequencies.data<float>();
    add_pages(a, v, kv);
    go(*this, "rope_store", a, layout.rows, fours(q, kv.head_size) && fours(k, kv.head_size) && fours(v, kv.head_size),
       kv.dtype);
  });
  written(kv);
}

}  // namespace foretoken

// gather: y[i] = x[rows[i]], x [*, width] of any type, rows i32 [n]. Bytes: 2 * n * width * size. pick: to[i] = *at[i],
// or known[i] where at[i] is null, kOutside where that is no token. Bytes: 16 a row. recall: row i of to [n, width] of
// any type = the row at address at[i], zeros where it is null. Bytes: 2 * n * width * size. spread: rows of -infinity
// with some columns. Bytes: n * (8 m + 4 vocab). translate: to[i] = ids[tokens[i]], -1 where there is none. Bytes:
// 12 a row.
#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {
namespace {

template <class T> __global__ void gather_kernel(const T* x, std::int64_t stride, const int* rows, T* y, int width) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const T* const from = x + std::int64_t(rows[blockIdx.x]) * stride;
  for (int i = int(threadIdx.x); i < width; i += int(blockDim.x)) y[std::int64_t(blockIdx.x) * width + i] = from[i];
}

__global__ void pick_kernel(const int* known, const int* const* at, int* to, std::int64_t to_stride, int n, int vocab) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i * to_stride] = within_vocabulary(at[i] != nullptr ? *at[i] : known[i], vocab);
}

__global__ void recall_kernel(const char* const* at, char* to, std::int64_t pitch, std::int64_t bytes) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const char* const from = at[blockIdx.x];
  char* const row = to + std::int64_t(blockIdx.x) * pitch;
  for (std::int64_t i = threadIdx.x; i < bytes; i += blockDim.x) row[i] = from ? from[i] : char(0);
}

__global__ void recall_wide_kernel(const bf16* const* at, float* to, std::int64_t stride, int width) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const bf16* const from = at[blockIdx.x];
  float* const row = to + std::int64_t(blockIdx.x) * stride;
  for (int i = int(threadIdx.x); i < width; i += int(blockDim.x))
    row[i] = from ? __uint_as_float(std::uint32_t(from[i].bits) << 16) : 0.0f;
}

// One block a row: all of it, then its columns, which the same block writes.
__global__ void spread_kernel(const float* from, std::int64_t from_stride, const int* ids, int columns, float* to,
                              std::int64_t to_stride, int vocab) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  float* const row = to + std::int64_t(blockIdx.x) * to_stride;
  for (int i = int(threadIdx.x); i < vocab; i += int(blockDim.x)) row[i] = __int_as_float(0xff800000);
  __syncthreads();
  const float* const values = from + std::int64_t(blockIdx.x) * from_stride;
  for (int j = int(threadIdx.x); j < columns; j += int(blockDim.x))
    if (ids[j] >= 0) row[ids[j]] = values[j];
}

__global__ void translate_kernel(const int* tokens, int n, const int* ids, int known, int* to) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] = tokens[i] >= 0 && tokens[i] < known ? ids[tokens[i]] : -1;
}

}  // namespace

Tensor CudaBackend::gather(const Tensor& x, const Tensor& rows) {
  enter();
  const Tensor y = allocate({rows.dim(0), x.dim(1)}, x.dtype());
  const auto go = [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch_kernel("gather", stream_, {dim3(unsigned(rows.dim(0))), 256, 0, 1, dependent_launch()}, gather_kernel<T>,
                  x.data<T>(), x.row_stride(), rows.data<int>(), y.data<T>(), int(x.dim(1)));
  };
  const std::int64_t size = size_of(x.dtype());
  if (size == 4)
    go(static_cast<std::uint32_t*>(nullptr));
  else if (size == 2)
    go(static_cast<std::uint16_t*>(nullptr));
  else
    throw Error(std::string("cuda: gather takes numbers of 2 or 4 bytes, not ") + name_of(x.dtype()));
  return y;
}

void CudaBackend::pick(const Tensor& known, const Tensor& at, Tensor to, int vocab) {
  enter();
  const int n = int(to.dim(0));
  launch_kernel("pick", stream_, {dim3(blocks_for(n, 256)), 256, 0, 1, dependent_launch()}, pick_kernel,
                known.data<int>(), at.data<const int*>(), to.data<int>(), to.row_stride(), n, vocab);
}

void CudaBackend::recall(const Tensor& at, Tensor to, DType from) {
  enter();
  expect_recall(at, to, from);
  const Grid shape{dim3(unsigned(to.dim(0))), 256, 0, 1, dependent_launch()};
  if (from != to.dtype()) {
    launch_kernel("recall", stream_, shape, recall_wide_kernel, at.data<const bf16*>(), to.data<float>(),
                  to.row_stride(), int(to.dim(1)));
    return;
  }
  const std::int64_t size = size_of(to.dtype());
  launch_kernel("recall", stream_, shape, recall_kernel, at.data<const char*>(), static_cast<char*>(to.raw()),
                to.row_stride() * size, to.dim(1) * size);
}

void CudaBackend::spread(const Tensor& from, const Tensor& ids, Tensor to) {
  enter();
  expect_spread(from, ids, to);
  launch_kernel("spread", stream_, {dim3(unsigned(to.dim(0))), 1024, 0, 1, dependent_launch()}, spread_kernel,
                from.data<float>(), from.row_stride(), ids.data<int>(), int(from.dim(1)), to.data<float>(),
                to.row_stride(), int(to.dim(1)));
}

Tensor CudaBackend::translate(const Tensor& tokens, const Tensor& ids) {
  enter();
  const Tensor to = allocate(tokens.shape(), DType::i32);
  const int n = int(tokens.dim(0));
  launch_kernel("translate", stream_, {dim3(blocks_for(n, 256)), 256, 0, 1, dependent_launch()}, translate_kernel,
                tokens.data<int>(), n, ids.data<int>(), int(ids.dim(0)), to.data<int>());
  return to;
}

}  // namespace foretoken

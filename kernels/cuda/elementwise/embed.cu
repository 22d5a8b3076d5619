// embed: x[r] = table[tokens[r]] (zeros for token -1), whatever the form of the table: see CudaMatrix. Here: dense
// tables [vocab, width] f32 or bf16, tokens i32 [rows] -> x f32 [rows, width]. Bytes: rows * width * (2 or 4 read, 4
// written).
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/products/dense_matrix.cuh"

namespace foretoken {
namespace {

template <class T>
__global__ void embed_kernel(const T* table, std::int64_t stride, const int* tokens, float* x, int width) {
  wait_for_previous_kernels();
  let_next_kernel_start();  // not before: see CudaBackend::reads_early
  const int token = tokens[blockIdx.x];
  float* const to = x + std::int64_t(blockIdx.x) * width;
  const T* const from = table + std::int64_t(token) * stride;
  for (int i = int(threadIdx.x); i < width; i += int(blockDim.x)) to[i] = token < 0 ? 0.0f : to_float(from[i]);
}

// Rows in fours.
template <class T>
__global__ void embed_fours(const T* table, std::int64_t stride, const int* tokens, float* x, int width) {
  wait_for_previous_kernels();
  let_next_kernel_start();
  const int token = tokens[blockIdx.x], i = 4 * int(blockIdx.y * blockDim.x + threadIdx.x);
  if (i < width)
    store_four(x + std::int64_t(blockIdx.x) * width + i,
               token < 0 ? float4{} : load_four(table + std::int64_t(token) * stride + i));
}

}  // namespace

void embed_dense(CudaBackend& backend, const Tensor& table, const Tensor& tokens, const Tensor& x) {
  const int width = int(table.dim(1));
  with_type("embed", table.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool wide = in_fours(table);
    const Grid grid{dim3(unsigned(tokens.dim(0)), wide ? blocks_for(width, 1024) : 1), 256, 0, 1,
                    backend.dependent_launch()};
    launch_kernel("embed", backend.cuda_stream(), grid, wide ? embed_fours<T> : embed_kernel<T>, table.data<T>(),
                  table.row_stride(), tokens.data<int>(), x.data<float>(), width);
  });
}

Tensor CudaBackend::embed(const Weight& weight, const Tensor& tokens) {
  enter();
  const Tensor x = allocate({tokens.dim(0), weight.in}, DType::f32);
  if (weight.prepared)
    matrix_of(weight).embed(*this, tokens, x);
  else
    embed_dense(*this, weight.values, tokens, x);
  if (tokens.dim(0) > 0) passed_barrier();
  return x;
}

}  // namespace foretoken

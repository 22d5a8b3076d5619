// linear, linear_to, linear_add, norm_linear, feed_forward: y = x W^T + b, W [out, in]. Bytes: the matrix once, out *
// in * (2 or 4); the rest is small as long as rows is much less than in / 2. Operations: 2 * rows * out * in.
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/products/blas.cuh"
#include "kernels/cuda/products/cuda_matrix.cuh"
#include "kernels/cuda/products/stream_product.cuh"

namespace foretoken {
namespace {

template <class T, class Y, bool kWide>
__global__ void convert_kernel(const T* x, std::int64_t stride, Y* y, int width) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  if constexpr (kWide) {
    const int i = 4 * int(blockIdx.y * blockDim.x + threadIdx.x);
    if (i < width) store_four(y + std::int64_t(blockIdx.x) * width + i, load_four(x + blockIdx.x * stride + i));
  } else {
    for (int i = int(threadIdx.x); i < width; i += int(blockDim.x))
      from_float(y[std::int64_t(blockIdx.x) * width + i], to_float(x[blockIdx.x * stride + i]));
  }
}

}  // namespace

const CudaMatrix& matrix_of(const Weight& w) {
  if (!w.prepared)
    throw Error("cuda: a product with a weight that was not prepared; pass it through Backend::prepare once");
  return static_cast<const CudaMatrix&>(*w.prepared);
}

int splits_of(std::int64_t out, std::int64_t in) {
  // kTasks: enough tasks of one warp each for 132 multiprocessors with 8 warps.
  constexpr std::int64_t kTasks = 1024, kLeast = 512, kStep = 128;
  int splits = 1;
  while (out / 16 * splits < kTasks && splits < 8 && in % (2 * splits * kStep) == 0 && in / (2 * splits) >= kLeast)
    splits *= 2;
  return splits;
}

Tensor converted(CudaBackend& backend, const Tensor& x, DType type) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(x.raw()) % 16 == 0;  // as the copy engine requires
  if (x.dtype() == type && x.dense() && aligned) return x;
  const Tensor y = backend.allocate(x.shape(), type);
  with_type("a product", x.dtype(), [&](auto* from) {
    with_type("a product", type, [&](auto* to) {
      using T = std::remove_pointer_t<decltype(from)>;
      using Y = std::remove_pointer_t<decltype(to)>;
      const bool wide = in_fours(x);
      launch_kernel(
          "converting", backend.cuda_stream(),
          {dim3(unsigned(x.dim(0)), wide ? blocks_for(x.dim(1), 1024) : 1), 256, 0, 1, backend.dependent_launch()},
          wide ? convert_kernel<T, Y, true> : convert_kernel<T, Y, false>, x.data<T>(), x.row_stride(), y.data<Y>(),
          int(x.dim(1)));
    });
  });
  return y;
}

CudaProducts::CudaProducts(CudaBackend& backend) : backend_(backend), blas_(std::make_unique<Blas>(backend)) {
  partials_ = backend.allocate({kMostPartials}, DType::f32);
  counters_ = backend.allocate({kMostTiles}, DType::i32);
  check(cudaMemsetAsync(counters_.raw(), 0, std::size_t(counters_.bytes()), backend.cuda_stream()), "clearing memory");
}

CudaProducts::~CudaProducts() = default;

void CudaProducts::run(const Tensor& y, const ProductInput& input, const Weight& w, bool adds) {
  expect_width("a product", input.x, w.in);
  expect_width("a product", y, w.out);
  if (y.dim(0) != input.rows())
    throw Error("cuda: a product of " + std::to_string(input.rows()) + " rows into " + y.shape().text());
  if (input.rows() == 0) return;
  matrix_of(w).multiply(*this, {y, w.bias, adds ? ProductEnd::added : ProductEnd::plain}, input);
}

std::string CudaProducts::note() const { return blas_->note(); }

Tensor CudaProducts::gated(const ProductInput& input, const Weight& w) {
  expect_width("a product", input.x, w.in);
  const CudaMatrix& matrix = matrix_of(w);
  const bool halves = input.rows() > 0 && matrix.gates(*this, input);
  const Tensor y = backend_.allocate({input.rows(), halves ? w.out / 2 : w.out}, matrix.type());
  if (halves) {
    matrix.multiply(*this, {y, w.bias, ProductEnd::gated}, input);
    return y;
  }
  run(y, input, w, false);
  return backend_.silu_mul(y);
}

Weight CudaBackend::prepare(Weight weight) {
  enter();
  return products_->prepare(std::move(weight));
}

DType CudaBackend::activation_type(const Weight& w) const { return matrix_of(w).type(); }

Tensor CudaBackend::linear(const Tensor& x, const Weight& w) {
  enter();
  const Tensor y = allocate({x.dim(0), w.out}, DType::f32);
  products_->run(y, {.x = x}, w, false);
  return y;
}

void CudaBackend::linear_to(Tensor y, const Tensor& x, const Weight& w) {
  enter();
  products_->run(y, {.x = x}, w, false);
}

void CudaBackend::linear_add(Tensor x, const Tensor& h, const Weight& w) {
  enter();
  products_->run(x, {.x = h}, w, true);
}

Tensor CudaBackend::norm_linear(const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) {
  enter();
  const Tensor y = allocate({x.dim(0), w.out}, activation_type(w));
  norm_linear_to(y, x, gain, epsilon, w);
  return y;
}

void CudaBackend::norm_linear_to(Tensor y, const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) {
  enter();
  products_->run(y, {.kind = ProductInput::Kind::norm, .x = x, .gain = gain, .epsilon = epsilon}, w, false);
}

void CudaBackend::feed_forward(Tensor x, const Tensor& gain, float epsilon, const Weight& gate_up, const Weight& down) {
  enter();
  linear_add(x, products_->gated({.kind = ProductInput::Kind::norm, .x = x, .gain = gain, .epsilon = epsilon}, gate_up),
             down);
}

}  // namespace foretoken

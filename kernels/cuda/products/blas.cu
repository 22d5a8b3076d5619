// y = x W^T + b by cuBLASLt, sums in f32 (no TF32). Row-major [out, in] is column-major [in, out], so y^T = W x^T with
// W transposed. Invariant numerics: every algorithm without split-K adds in the same order, whatever its tile
// (measured), so the matrix is divided into the slices of splits_of(), each slice is a separate product, and a kernel
// adds the slices in order.
#include <algorithm>

#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/products/blas_plan.cuh"
#include "kernels/cuda/products/exact_product.cuh"
#include "kernels/cuda/products/products.cuh"

namespace foretoken {
namespace {

// y[r, o] = p[0, r, o] + p[1, r, o] + ... + bias[o] (+ y[r, o]); p f32 [slices, rows, out].
template <class Y> __global__ void add_slices_kernel(const float* p, int slices, std::int64_t slice, const float* bias,
                                                     Y* y, std::int64_t y_stride, int out, bool adds) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int o = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (o >= out) return;
  const float* const at = p + std::int64_t(blockIdx.y) * out + o;
  float sum = at[0];
  for (int s = 1; s < slices; ++s) sum += at[s * slice];
  if (bias != nullptr) sum += bias[o];
  Y& to = y[blockIdx.y * y_stride + o];
  from_float(to, adds ? to_float(to) + sum : sum);
}

int alignment_of(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 256;
  for (const void* p : pointers) bits |= reinterpret_cast<std::uintptr_t>(p);
  return int(bits & (~bits + 1));
}

}  // namespace

Blas::Blas(CudaBackend& backend)
    : backend_(backend),
      handle_(nullptr, [](void* handle) { (void)cublasLtDestroy(static_cast<cublasLtHandle_t>(handle)); }) {
  cublasLtHandle_t handle = nullptr;
  check_blas(cublasLtCreate(&handle), "starting");
  handle_.reset(handle);
  workspace_ = backend.allocate({kBlasWorkspace}, DType::u8);
}

Blas::~Blas() = default;

bool Blas::multiply(const Plan& p, const Algorithm& algorithm, void* y, const Tensor& x, const Tensor& matrix,
                    bool adds) {
  const float one = 1, beta = adds ? 1 : 0;
  return !refused(cublasLtMatmul(static_cast<cublasLtHandle_t>(handle_.get()), p.operation.get(), &one, matrix.raw(),
                                 p.w.get(), x.raw(), p.x.get(), &beta, y, p.y.get(), y, p.y.get(), &algorithm.it,
                                 workspace_.raw(), std::size_t(kBlasWorkspace), backend_.cuda_stream()),
                  "a product");
}

bool Blas::multiply(Plan& p, void* y, const Tensor& x, const Tensor& matrix, bool adds) {
  if (p.state != State::none && !multiply(p, {p.algorithm}, y, x, matrix, adds)) p.state = State::none;
  return p.state != State::none;
}

// sums f32 [slices, rows, out].
void Blas::add_slices(const Tensor& y, const Tensor& sums, int slices, const Tensor& bias, bool adds) {
  const std::int64_t rows = y.dim(0), out = y.dim(1);
  with_type("a product", y.dtype(), [&](auto* type) {
    using Y = std::remove_pointer_t<decltype(type)>;
    constexpr std::int64_t kMost = 32768;  // rows of a grid
    for (std::int64_t r = 0; r < rows; r += kMost)
      launch_kernel(
          "adding slices", backend_.cuda_stream(),
          {dim3(blocks_for(out, 256), unsigned(std::min(kMost, rows - r))), 256, 0, 1, backend_.dependent_launch()},
          add_slices_kernel<Y>, sums.data<float>() + r * out, slices, rows * out, bias ? bias.data<float>() : nullptr,
          y.data<Y>() + r * y.row_stride(), y.row_stride(), int(out), adds);
  });
}

void Blas::run(const Tensor& y, const Tensor& x, const Tensor& matrix, const Tensor& bias, bool adds,
               const FewRows& few) {
  const std::int64_t rows = x.dim(0), out = matrix.dim(0), in = matrix.dim(1);
  const int slices = backend_.invariant() ? splits_of(out, in) : 1;
  const bool direct = slices == 1 && !bias;
  const Tensor sums = direct ? y : backend_.allocate({slices, rows, out}, DType::f32);
  const Shape3 shape{out,
                     in,
                     rows,
                     direct ? y.row_stride() : out,
                     matrix.dtype(),
                     sums.dtype(),
                     slices,
                     alignment_of({sums.raw(), x.raw(), matrix.raw()})};
  Plan& p = plan(shape, x, matrix);
  if (backend_.invariant() && !has_bits_of(few, p, shape, direct && adds ? nullptr : sums.raw(), matrix))
    return multiply_slabs(few, y, x, matrix, bias, adds);
  if (!multiply(p, sums.raw(), x, matrix, direct && adds)) {
    if (backend_.invariant()) return multiply_slabs(few, y, x, matrix, bias, adds);
    return exact_product(backend_, Epilogue(y, bias, adds), x, matrix);
  }
  if (!direct) add_slices(y, sums, slices, bias, adds);
}

}  // namespace foretoken

// Invariant numerics by cuBLASLt. The guarantee is that a row's bits do not depend on the number of rows in the batch,
// and it relies on the library: all its algorithms without split-K add in one order, whatever their tile. That was
// measured, on one type of GPU and one version. So every plan is compared, when it is made, with the kernel that
// computes few rows (mma.m16n8k16, k ascending in one chain for each slice), or, where no such kernel supports the
// matrix, with the library's own product of 16 rows. Not with exact_product: its chain of f32 fused multiply-adds
// rounds differently from tensor cores, and bf16 matrices of ordinary shapes do not use it. Where the bits differ,
// slabs of few rows are multiplied: slower, but invariant.
#include <algorithm>
#include <set>

#include "kernels/cuda/memory/memory.cuh"
#include "kernels/cuda/products/blas_plan.cuh"
#include "kernels/cuda/products/exact_product.cuh"
#include "kernels/cuda/products/products.cuh"

namespace foretoken {
namespace {

constexpr int kThreads = 256;

// Pseudo-random numbers in [-1, 1).
__global__ void noise_kernel(Bf16* x, std::int64_t n) {
  wait_for_previous_kernels();
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  std::uint32_t h = std::uint32_t(i) * 2654435761u + 12345u;
  h = (h ^ h >> 15) * 0x85ebca6bu, h = (h ^ h >> 13) * 0xc2b2ae35u, h ^= h >> 16;
  x[i] = __float2bfloat16_rn(float(h >> 8) * 0x1p-23f - 1);
}

// Whether y [slices, rows, out] f32 adds up to sums f32 [rows, out]; of bf16 [rows, out], whether it is their rounding.
template <class Y> __global__ void differs_kernel(const Y* y, int slices, std::int64_t slice, std::int64_t stride,
                                                  const float* sums, int out, std::int32_t* differs) {
  wait_for_previous_kernels();
  const int o = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (o >= out) return;
  const Y* const at = y + blockIdx.y * stride + o;
  float found = to_float(at[0]), truth = sums[std::int64_t(blockIdx.y) * out + o];
  for (int s = 1; s < slices; ++s) found += to_float(at[s * slice]);
  if constexpr (sizeof(Y) == sizeof(Bf16)) truth = __bfloat162float(__float2bfloat16_rn(truth));
  if (found != truth && !(isnan(found) && isnan(truth))) *differs = 1;
}

}  // namespace

bool Blas::has_bits_of(const FewRows& few, Plan& p, const Shape3& s, void* scratch, const Tensor& matrix) {
  using enum State;
  if (p.state == unchecked && !backend_.recording()) try {
      const bool equal = !backend_.options().doubt_library && compare(few, p, s, scratch, matrix);
      if (p.state == unchecked) p.state = equal ? same : other;  // else refused
    } catch (const OutOfMemory&) {                               // unchecked as yet
    }
  return p.state == same;
}

// Compares the first and the last rows. Rounding to bf16 hides a difference in the last bits of f32 sums in all but
// about one of 10,000 numbers, so a plan that writes bf16 is compared again with an f32 result, by the algorithm of
// equal settings. That both add in the same order is assumed; the tests of row counts support it. A plan for which
// there is no such algorithm counts as different. Adding the product to the negated sums does not show their last bits
// instead: algorithms for 9.0 round the product to bf16 before they add it to a bf16 matrix (measured, cuBLASLt 13.1).
bool Blas::compare(const FewRows& few, Plan& p, const Shape3& s, void* scratch, const Tensor& matrix) {
  const std::int64_t n = std::min(few.rows, s.rows);
  const Tensor x = backend_.allocate({s.rows, s.in}, s.type), sums = backend_.allocate({2, n * s.out}, DType::f32);
  launch_kernel("comparing products", backend_.cuda_stream(), {dim3(blocks_for(s.rows * s.in, kThreads)), kThreads},
                noise_kernel, x.data<Bf16>(), s.rows * s.in);
  for (int i = 0; i < 2; ++i)
    multiply_few(few, sums.rows(i, 1).reshaped({n, s.out}), x.rows(i == 0 ? 0 : s.rows - n, n), matrix);
  if (!gives(p, s, scratch, x, matrix, sums)) return false;
  if (s.y_type == DType::f32) return true;
  Shape3 unrounded = s;
  unrounded.y_type = DType::f32, unrounded.y_stride = s.out;
  const std::unique_ptr<Plan> with_f32 = find_equal(unrounded, p);
  return with_f32 && gives(*with_f32, unrounded, nullptr, x, matrix, sums);
}

// Whether the plan's products of the first rows of x and of the last have the bits of sums f32 [2, n * out].
bool Blas::gives(Plan& p, const Shape3& s, void* scratch, const Tensor& x, const Tensor& matrix, const Tensor& sums) {
  const cudaStream_t stream = backend_.cuda_stream();
  const std::int64_t n = sums.dim(1) / s.out;
  const Tensor flag = backend_.allocate({1}, DType::i32),
               own = scratch ? Tensor() : backend_.allocate({s.slices * s.rows * s.y_stride}, s.y_type);
  void* const y = scratch ? scratch : own.raw();
  check(cudaMemsetAsync(flag.raw(), 0, sizeof(std::int32_t), stream), "comparing products");
  if (!multiply(p, y, x, matrix, false)) return false;
  for (int i = 0; i < 2; ++i)
    with_type("comparing products", s.y_type, [&](auto* type) {
      using Y = std::remove_pointer_t<decltype(type)>;
      launch_kernel("comparing products", stream, {dim3(blocks_for(s.out, kThreads), unsigned(n)), kThreads},
                    differs_kernel<Y>, static_cast<const Y*>(y) + (i == 0 ? 0 : s.rows - n) * s.y_stride, s.slices,
                    s.rows * s.y_stride, s.y_stride, sums.row<float>(i), int(s.out), flag.data<std::int32_t>());
    });
  std::int32_t differs = 0;
  check(cudaMemcpyAsync(&differs, flag.raw(), sizeof differs, cudaMemcpyDeviceToHost, stream), "comparing products");
  check(cudaStreamSynchronize(stream), "comparing products");
  return differs == 0;
}

void Blas::multiply_few(const FewRows& few, const Tensor& y, const Tensor& x, const Tensor& matrix) {
  if (few.multiply) return few.multiply(y, x, matrix);
  const std::int64_t rows = few.rows, out = matrix.dim(0), in = matrix.dim(1), n = x.dim(0);
  const int slices = splits_of(out, in);
  const Tensor padded = backend_.allocate({rows, in}, x.dtype()),
               sums = backend_.allocate({slices, rows, out}, DType::f32),
               all = backend_.allocate({rows, out}, DType::f32);
  check(cudaMemsetAsync(padded.raw(), 0, std::size_t(padded.bytes()), backend_.cuda_stream()), "a product");
  backend_.copy(x, padded.rows(0, n));
  const Shape3 shape{out, in, rows, out, matrix.dtype(), DType::f32, slices, 256};
  if (!multiply(plan(shape, padded, matrix), sums.raw(), padded, matrix, false))
    return exact_product(backend_, Epilogue(y, {}, false), x, matrix);
  add_slices(all, sums, slices, {}, false);
  backend_.copy(all.rows(0, n), y);
}

void Blas::multiply_slabs(const FewRows& few, const Tensor& y, const Tensor& x, const Tensor& matrix,
                          const Tensor& bias, bool adds) {
  for (std::int64_t r = 0; r < x.dim(0); r += few.rows) {
    const std::int64_t n = std::min(few.rows, x.dim(0) - r);
    const Tensor sums = backend_.allocate({n, matrix.dim(0)}, DType::f32);
    multiply_few(few, sums, x.rows(r, n), matrix);
    add_slices(y.rows(r, n), sums, 1, bias, adds);
  }
}

std::string Blas::matrices_in(State state) const {
  std::set<std::pair<std::int64_t, std::int64_t>> matrices;
  for (const auto& [shape, p] : plans_)
    if (p->state == state) matrices.insert({shape.out, shape.in});
  std::string names;
  for (const auto& [out, in] : matrices)
    names += (names.empty() ? "[" : ", [") + std::to_string(out) + ", " + std::to_string(in) + "]";
  return names;
}

std::string Blas::note() const {
  const std::string other = matrices_in(State::other), none = matrices_in(State::none);
  std::string note;
  if (!other.empty())
    note = "cuBLASLt's bits depend on the number of rows for matrices " + other +
           ": multiplied a few rows at a time, and so slow";
  if (!none.empty())
    note += (note.empty() ? "" : "; ") + ("cuBLASLt has no algorithm for matrices " + none) +
            ": multiplied by other kernels, and so slow";
  return note;
}

}  // namespace foretoken

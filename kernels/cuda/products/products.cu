// linear, linear_to, linear_add, norm_linear, feed_forward: y = x W^T + b, W [out, in]. Bytes: the matrix once, out *
// in * (2 or 4); the rest is small as long as rows is much less than in / 2. Operations: 2 * rows * out * in.
#include <algorithm>

#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/products/blas.cuh"
#include "kernels/cuda/products/coded_tile.cuh"
#include "kernels/cuda/products/exact_product.cuh"
#include "kernels/cuda/products/packed_matrix.cuh"
#include "kernels/cuda/products/product_maps.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/rounded_product.cuh"
#include "kernels/cuda/products/stream_product.cuh"
#include "kernels/cuda/products/tile_product.cuh"
#include "kernels/cuda/products/wide_product.cuh"

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

// The matrix on the device that prepare() made.
StreamedMatrix matrix_of(const Weight& w) {
  if (!w.prepared)
    throw Error("cuda: a product with a weight that was not prepared; pass it through Backend::prepare once");
  if (const auto* cells = dynamic_cast<const PackedMatrix*>(w.prepared.get())) return StreamedMatrix::of(*cells);
  return StreamedMatrix::of(static_cast<const PreparedMatrix*>(w.prepared.get())->matrix);
}
DType type_of(const StreamedMatrix& m) { return m.packed != nullptr ? DType::bf16 : m.dense.dtype(); }
// The same matrix, dense: a packed one is unpacked to memory for one product.
Tensor dense_of(CudaBackend& backend, const StreamedMatrix& m) {
  return m.packed != nullptr ? unpacked(backend, *m.packed) : m.dense;
}

// Of norm_linear, and of the product before silu_mul.
DType output_type(const Weight& w) { return w.activations ? DType::f32 : type_of(matrix_of(w)); }

}  // namespace

int splits_of(std::int64_t out, std::int64_t in) {
  // kTasks: enough tasks of one warp each for 132 multiprocessors with 8 warps.
  constexpr std::int64_t kTasks = 1024, kLeast = 512, kStep = 128;
  int splits = 1;
  while (out / 16 * splits < kTasks && splits < 8 && in % (2 * splits * kStep) == 0 && in / (2 * splits) >= kLeast)
    splits *= 2;
  return splits;
}

Tensor converted(CudaBackend& backend, const Tensor& x, DType type) {
  if (x.dtype() == type && x.dense()) return x;
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

// The input as a dense matrix of the matrix' type.
Tensor CudaProducts::dense_input(const ProductInput& input, DType type) {
  if (input.kind == ProductInput::Kind::norm) return rms_norm_as(backend_, input.x, input.gain, input.epsilon, type);
  return converted(backend_, input.x, type);
}

// The input itself where a streamed product takes it; otherwise (a norm of several rows) converted or normed by a
// kernel before.
ProductInput CudaProducts::ready(const ProductInput& input, const StreamedMatrix& matrix) {
  if (streams(input, matrix)) return input;
  return {.x = dense_input(input, type_of(matrix))};
}

void CudaProducts::run(const Tensor& y, const ProductInput& input, const Weight& w, bool adds) {
  expect_width("a product", input.x, w.in);
  expect_width("a product", y, w.out);
  if (y.dim(0) != input.rows())
    throw Error("cuda: a product of " + std::to_string(input.rows()) + " rows into " + y.shape().text());
  if (input.rows() == 0) return;
  if (w.activations) return rounded_product(backend_, y, dense_input(input, DType::bf16), w, adds);
  const StreamedMatrix matrix = matrix_of(w);
  const ProductInput made = ready(input, matrix);
  if (matrix.packed != nullptr && streams(made, matrix))
    return stream(y, made, matrix, w.bias, adds ? ProductEnd::added : ProductEnd::plain);
  if (matrix.packed != nullptr && can_tile_codes(backend_, made.x, *matrix.packed, w.bias, false) &&
      aligned(y, 4 * size_of(y.dtype())))
    return coded_tile_product(backend_, y, made.x, *matrix.packed, w.bias, adds, false);
  run_dense(y, made, w, dense_of(backend_, matrix), adds);
}

void CudaProducts::run_dense(const Tensor& y, const ProductInput& input, const Weight& w, const Tensor& matrix,
                             bool adds) {
  const ProductEnd end = adds ? ProductEnd::added : ProductEnd::plain;
  const StreamedMatrix streamed = StreamedMatrix::of(matrix);
  if (tiles(input, w) && can_tile(backend_, y, input.x, matrix))
    return tile_product(backend_, y, input.x, matrix, w.bias, adds);
  if (streams(input, streamed)) return stream(y, input, streamed, w.bias, end);
  if (backend_.invariant() && can_widen(backend_, y, input.x, matrix))
    return wide_product(backend_, y, input.x, matrix, w.bias, adds);
  const bool awkward = w.in % 8 != 0 || w.out % 4 != 0;  // cuBLASLt has no order of sums of its own for these
  if (backend_.invariant() && awkward && input.rows() > kStreamRows &&
      streams({.x = input.x.rows(0, kStreamRows)}, streamed)) {
    for (std::int64_t r = 0; r < input.rows();
         r += kStreamRows) {  // by the kernel of few rows: exact_product adds in another order
      const std::int64_t n = std::min<std::int64_t>(kStreamRows, input.rows() - r);
      stream(y.rows(r, n), {.x = input.x.rows(r, n)}, streamed, w.bias, end);
    }
    return;
  }
  if (backend_.invariant() && (matrix.dtype() == DType::f32 || awkward))
    return exact_product(backend_, y, input.x, matrix, w.bias, adds);
  blas_->run(y, input.x, matrix, w.bias, adds, few_rows(input.x, matrix));
}

// The kernel with which the library's bits are compared: a streamed product of as many rows as it supports (16, 8 or
// 1), or none where it does not support the matrix.
FewRows CudaProducts::few_rows(const Tensor& x, const Tensor& matrix) {
  if (!backend_.invariant()) return {};
  for (const std::int64_t n : {std::int64_t(kStreamRows), std::int64_t(8), std::int64_t(1)}) {
    if (!streams({.x = x.rows(0, std::min(n, x.dim(0)))}, StreamedMatrix::of(matrix))) continue;
    return {n, [this](const Tensor& y, const Tensor& rows, const Tensor& m) {
              stream(y, {.x = rows}, StreamedMatrix::of(m), {}, ProductEnd::plain);
            }};
  }
  return {};
}

std::string CudaProducts::note() const { return blas_->note(); }

Tensor CudaProducts::gated(const ProductInput& input, const Weight& w) {
  expect_width("a product", input.x, w.in);
  if (w.activations) {
    const Tensor y = backend_.allocate({input.rows(), w.out}, output_type(w));
    run(y, input, w, false);
    return backend_.silu_mul(y);
  }
  const StreamedMatrix matrix = matrix_of(w);
  const ProductInput made = ready(input, matrix);
  const bool streamed = streams(made, matrix);
  const bool tile = matrix.packed != nullptr
                        ? !streamed && can_tile_codes(backend_, made.x, *matrix.packed, w.bias, true)
                        : tiles(made, w) && can_tile_gated(backend_, made.x, matrix.dense, w.bias);
  const bool halves = tile || (streamed && w.out % 16 == 0 && input.rows() > 0);
  const Tensor y = backend_.allocate({input.rows(), halves ? w.out / 2 : w.out}, type_of(matrix));
  if (tile) {
    if (matrix.packed != nullptr)
      coded_tile_product(backend_, y, made.x, *matrix.packed, w.bias, false, true);
    else
      gated_tile_product(backend_, y, made.x, matrix.dense);
    return y;
  }
  if (halves) {
    stream(y, made, matrix, w.bias, ProductEnd::gated);
    return y;
  }
  run(y, made, w, false);
  return backend_.silu_mul(y);
}

// Where this route was measured to be the fastest: 9 rows and more, for a head (a very tall matrix) 2 rows and more. Up
// to 64 rows where all tiles run at once, or where the library would write each slice to memory; else up to 32 where
// one side of the matrix is short, and up to 16 where none is.
bool CudaProducts::tiles(const ProductInput& input, const Weight& w) const {
  constexpr std::int64_t kHead = 1 << 16, kShort = 2048, kShortRows = 32;
  const std::int64_t rows = input.rows(), fewest = w.out >= kHead ? 2 : 9;
  const bool many = tiles_at_once(backend_, w.out, w.in) || (backend_.invariant() && splits_of(w.out, w.in) > 1);
  const std::int64_t most = many ? kTileRows : std::min(w.out, w.in) <= kShort ? kShortRows : kStreamRows;
  return input.kind == ProductInput::Kind::plain && rows >= fewest && rows <= most;
}

bool CudaProducts::streams(const ProductInput& input, const StreamedMatrix& matrix) const {
  return type_of(matrix) == DType::bf16 && input.rows() <= kStreamRows && can_stream(backend_, input, matrix);
}

void CudaProducts::stream(const Tensor& y, const ProductInput& input, const StreamedMatrix& matrix, const Tensor& bias,
                          ProductEnd end) {
  stream_product(backend_, y, input, matrix, bias, end, partials_, counters_);
}

Weight CudaBackend::prepare(Weight weight) {
  enter();
  return products_->prepare(std::move(weight));
}

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
  const Tensor y = allocate({x.dim(0), w.out}, output_type(w));
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

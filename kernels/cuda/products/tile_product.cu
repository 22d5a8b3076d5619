// y = x W^T + b for at most 64 rows. W bf16 [out, in], x bf16 [rows, in], sums in f32.
// Bytes: the matrix once, out * in * 2, from memory; x once for every 128 to 224 outputs, from L2. Operations: 2 * rows
// * out * in. One warp of a block asks the copy engine for boxes of 64 inputs, several ahead, into a ring in shared
// memory; the others multiply them, so that a result does not depend on how many rows there are and has the bits of the
// other ways. The matrix' boxes are asked for before the kernel waits for the one before it: the multiprocessors hold
// up to 26 MB by then. Where splits_of() cuts the inputs, the slices lie in the blocks of a cluster; each adds up a
// share of the rows, slices in order, from the shared memory of all. Elsewhere a block takes one tile after another.
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/tile_kernels.cuh"
#include "kernels/cuda/products/tile_product.cuh"

namespace foretoken {
namespace {

constexpr int kMostOuts = 224;  // of a block

// T is the tile of a kernel, sliced_kernel or whole_kernel.
template <class T> void launch(const CudaBackend& backend, TileWork& work, const Tensor& x, const Tensor& matrix,
                               void (*kernel)(TileWork)) {
  if (work.gated)
    gated_map(work.w, matrix, T::kOuts);
  else
    plain_map(work.w, matrix, T::kOuts);
  plain_map(work.x, x, T::kRows);
  work.tiles = int(blocks_for(matrix.dim(0), T::kOuts));
  Grid grid{dim3(unsigned(work.tiles * work.slices)), T::kThreads, std::size_t(T::kShared), work.slices,
            backend.overlaps()};
  if (work.slices == 1) grid.blocks.x = std::min(grid.blocks.x, unsigned(T::kBlocks * backend.multiprocessors()));
  launch_kernel("a product", backend.cuda_stream(), grid, kernel, work);
}

template <int kRows, int kOuts = 128, int kBlocks = 2>
void launch_rows(const CudaBackend& backend, TileWork& work, const Tensor& x, const Tensor& matrix) {
  using T = Tile<kRows, kOuts, kBlocks>;
  launch<T>(backend, work, x, matrix, work.slices == 1 ? whole_kernel<T> : sliced_kernel<T>);
}

// Outputs of a block where each multiprocessor has one block, whose ring is deep, and all run at once. Clusters of four
// and eight such blocks leave a twelfth of the multiprocessors out (an H200's are 132, in groups of 16 and 18).
std::int64_t outs_at_once(const CudaBackend& backend, std::int64_t out, int slices) {
  const std::int64_t blocks = slices == 1 ? backend.multiprocessors() : backend.multiprocessors() * 10 / 11 / slices;
  return blocks_for(out, std::max<std::int64_t>(1, blocks));
}

// Many rows leave two rings of a multiprocessor too shallow: 3.5 TB/s of matrix at 64 rows, where one of twice the size
// reads more than 4. A gated product's tiles are of the whole matrix too: one round of 224 for 8b's gate and up, not
// two of 128 (steps of 24 to 64 rows 1 % slower).
template <int kRows>
void launch_many(const CudaBackend& backend, TileWork& work, const Tensor& x, const Tensor& matrix) {
  constexpr int kFew = 4;  // boxes, for which no ring is deep
  const std::int64_t outs = outs_at_once(backend, matrix.dim(0), work.slices);
  if (work.boxes <= kFew || outs > kMostOuts)
    launch_rows<kRows>(backend, work, x, matrix);
  else if (outs <= 128)
    launch_rows<kRows, 128, 1>(backend, work, x, matrix);
  else if (outs <= 144)
    launch_rows<kRows, 144, 1>(backend, work, x, matrix);
  else if (outs <= 208)
    launch_rows<kRows, 208, 1>(backend, work, x, matrix);
  else
    launch_rows<kRows, kMostOuts, 1>(backend, work, x, matrix);
}

void launch(const CudaBackend& backend, TileWork& work, const Tensor& x, const Tensor& matrix) {
  if (work.rows <= 8)
    launch_rows<8>(backend, work, x, matrix);
  else if (work.rows <= 16)
    launch_rows<16>(backend, work, x, matrix);
  else if (work.rows <= 32)
    launch_many<32>(backend, work, x, matrix);
  else
    launch_many<64>(backend, work, x, matrix);
}

bool takes(const CudaBackend& backend, const Tensor& x, const Tensor& matrix) {
  const int slices = splits_of(matrix.dim(0), matrix.dim(1));
  return backend.warpgroups() && all_fit(kProductTiles, backend.shared_memory()) && x.dim(0) <= kTileRows &&
         matrix.dtype() == DType::bf16 && x.dtype() == DType::bf16 && aligned(x, 16) && aligned(matrix, 16) &&
         matrix.dim(1) % (kBoxInputs * slices) == 0 && map_encoder() != nullptr;
}

TileWork work_of(const Tensor& y, const Tensor& x, const Tensor& matrix) {
  TileWork a = {};
  a.out = int(y.dim(1)), a.rows = int(x.dim(0)), a.slices = splits_of(matrix.dim(0), matrix.dim(1)),
  a.boxes = int(matrix.dim(1)) / a.slices / kBoxInputs;
  if (y.dtype() == DType::f32)
    a.y = y.data<float>();
  else
    a.y_bf16 = y.data<Bf16>();
  a.y_stride = y.row_stride();
  return a;
}

}  // namespace

bool tiles_at_once(const CudaBackend& backend, std::int64_t out, std::int64_t in) {
  return outs_at_once(backend, out, splits_of(out, in)) <= kMostOuts;
}

bool can_tile(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix) {
  return takes(backend, x, matrix) && matrix.dim(0) % 4 == 0 && aligned(y, 4 * size_of(y.dtype()));
}

void tile_product(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix,
                  const Tensor& bias, bool adds) {
  TileWork a = work_of(y, x, matrix);
  if (bias) a.bias = bias.data<float>();
  a.adds = adds;
  launch(backend, a, x, matrix);
}

bool can_tile_gated(const CudaBackend& backend, const Tensor& x, const Tensor& matrix, const Tensor& bias) {
  return !bias && takes(backend, x, matrix) && matrix.dim(0) % 16 == 0 && splits_of(matrix.dim(0), matrix.dim(1)) == 1;
}

void gated_tile_product(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix) {
  TileWork a = work_of(y, x, matrix);
  a.gated = true;
  launch(backend, a, x, matrix);
}

}  // namespace foretoken

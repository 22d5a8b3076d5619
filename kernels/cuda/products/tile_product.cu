// Products of at most 64 rows with bf16 matrices by the kernels of tile_kernel.cuh: the tile for each shape. Slices are
// those of splits_of(), so that a result has the bits of the other routes.
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/tile_kernel.cuh"
#include "kernels/cuda/products/tile_product.cuh"

namespace foretoken {
namespace {

constexpr int kMostOuts = 224;  // of a block

template <int kRows, int kOuts = 128, int kBlocks = 2>
void launch_rows(const CudaBackend& backend, BoxWork& work, const Tensor& x, const Tensor& matrix) {
  launch_tile<BoxTile<Bf16Numbers, kRows, kOuts, kBlocks>, RunFold::none>(backend, work, x, matrix);
}

// Outputs of a block where each multiprocessor has one block with a deep ring, and all run at once.
std::int64_t outs_at_once(const CudaBackend& backend, std::int64_t out, int slices) {
  return blocks_for(out, blocks_at_once(backend, slices));
}

// With many rows, two blocks on a multiprocessor have rings that are too shallow: the matrix is read at 3.5 TB/s at 64
// rows, but at more than 4 with one block and a ring of twice the size. A gated product's tiles are of the whole matrix
// too: one round of 224 for 8b's gate and up, not two of 128 (steps of 24 to 64 rows 1 % slower).
template <int kRows>
void launch_many(const CudaBackend& backend, BoxWork& work, const Tensor& x, const Tensor& matrix) {
  constexpr int kFew = 4;  // with so few boxes a deep ring has no use
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

}  // namespace

bool tiles_at_once(const CudaBackend& backend, std::int64_t out, std::int64_t in) {
  return outs_at_once(backend, out, splits_of(out, in)) <= kMostOuts;
}

bool can_tile(const CudaBackend& backend, std::int64_t out, std::int64_t in) {
  return multiplies_boxes(backend) && in % (kBoxInputs * splits_of(out, in)) == 0;
}

void tile_product(const CudaBackend& backend, const Epilogue& to, const Tensor& x, const Tensor& matrix) {
  BoxWork a = {};
  a.to = to, a.slices = splits_of(matrix.dim(0), matrix.dim(1)), a.runs = 1;
  a.boxes = int(matrix.dim(1)) / a.slices / kBoxInputs;
  if (to.rows <= 8)
    launch_rows<8>(backend, a, x, matrix);
  else if (to.rows <= 16)
    launch_rows<16>(backend, a, x, matrix);
  else if (to.rows <= 32)
    launch_many<32>(backend, a, x, matrix);
  else
    launch_many<64>(backend, a, x, matrix);
}

}  // namespace foretoken

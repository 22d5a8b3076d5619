// y = x W^T + b for at most 16 rows. W bf16 [out, in], or packed: bytes: the matrix once; x comes from L2, once per
// block. The kernel: stream_kernel.cuh.
#include <bit>

#include "kernels/cuda/products/product_maps.cuh"
#include "kernels/cuda/products/stream_dense.cuh"
#include "kernels/cuda/products/stream_kernel.cuh"
#include "kernels/cuda/products/stream_product.cuh"

namespace foretoken {
namespace {

template <int NT, int kRing, int kPiece> constexpr StreamKernel<DenseOperand> kKernel =
    stream_kernel<NT, Ring<DensePieces<kRing, kPiece>>>;

template <int NT> StreamKernel<DenseOperand> kernel_of(int ring, int piece) {
  if (piece == 64) return ring == 3 ? kKernel<NT, 3, 64> : kKernel<NT, 4, 64>;
  if (piece == 256) return ring == 2 ? kKernel<NT, 2, 256> : kKernel<NT, 3, 256>;
  return ring == 3   ? kKernel<NT, 3, 128>
         : ring == 4 ? kKernel<NT, 4, 128>
         : ring == 5 ? kKernel<NT, 5, 128>
                     : kKernel<NT, 6, 128>;
}

void launch_dense(cudaStream_t stream, const Grid& grid, const StreamPlan& plan, const Stream& a,
                  const Tensor& matrix) {
  DenseOperand m = {};
  m.w = matrix.data<Bf16>();
  if (grid.dependent_launch && !comes_in_runs(plan.pieces.piece)) matrix_map(m.map, matrix, 16, a.to.gated);
  const int ring = plan.pieces.ring, piece = plan.pieces.piece;
  launch_kernel("a product", stream, grid, a.rows <= 8 ? kernel_of<1>(ring, piece) : kernel_of<2>(ring, piece), a, m);
}

// About 64 KB in flight for a multiprocessor, two microseconds of memory bandwidth.
int window_of(const StreamPlan& plan) {
  const int pieces = plan.warps * plan.pieces.bytes;
  return std::max(1, ((64 << 10) + pieces / 2) / pieces);
}

}  // namespace

void stream_product(CudaProducts& products, const ProductResult& result, const ProductInput& input,
                    const StreamedMatrix& matrix, const StreamPlan& plan) {
  const CudaBackend& backend = products.backend();
  Stream a = {};
  a.out = int(matrix.out), a.in = int(matrix.in), a.tiles = (a.out + 15) / 16;
  a.kind = stream_input(input);
  a.x = input.x.raw(), a.x_stride = input.x.row_stride(), a.rows = int(input.rows());
  if (input.gain) a.gain = input.gain.data<float>(), a.epsilon = input.epsilon;
  a.slices = plan.slices, a.slice = a.in / a.slices, a.local = plan.local, a.depth = plan.depth,
  a.window = window_of(plan);
  const int parts = plan.slices / plan.local;
  a.parts_log = std::countr_zero(unsigned(parts)), a.local_log = std::countr_zero(unsigned(plan.local)),
  a.groups = plan.blocks / parts, a.stride = a.groups * (plan.warps / plan.local);
  a.partials = products.partials().data<float>(), a.counters = products.counters().data<int>();
  a.to = result.epilogue();
  const Grid grid{dim3(unsigned(plan.blocks)), plan.warps * 32, std::size_t(stream_bytes(plan, a.kind, a.rows, a.in)),
                  1, backend.dependent_launch()};
  if (matrix.packed != nullptr) return launch_coded(backend.cuda_stream(), grid, plan, a, *matrix.packed);
  launch_dense(backend.cuda_stream(), grid, plan, a, matrix.dense);
}

}  // namespace foretoken

// The streamed product of packed matrices: bytes: bits / 8 for each weight and its scales, once. For each pair of
// weights some 2 (int4, bf16 scales) to 7 instructions (codes.cuh) and 3 around them, beside the product's.
#include "kernels/cuda/products/stream_cells.cuh"
#include "kernels/cuda/products/stream_codes.cuh"
#include "kernels/cuda/products/stream_kernel.cuh"

namespace foretoken {
namespace {

// Codes of 4 bits: stages of a ring that lanes fill, for few warps and for many.
constexpr int kStages[] = {8, 4};
// Codes of 8 bits: stages by inputs of a piece: with 256, a piece has less work beside its products.
constexpr int ring_of(int inputs) { return inputs == 256 ? 3 : 5; }

template <class U, int NT> StreamKernel<CodedMatrix> kernel_of(const StreamPieces& pieces, const PackedLayout& layout) {
  if constexpr (bits_of(U::kCode) == 8) {
    return pieces.piece == 256 ? stream_kernel<NT, Ring<CodedPieces<U, ring_of(256), 256>>>
                               : stream_kernel<NT, Ring<CodedPieces<U, ring_of(128), 128>>>;
  } else {
    const auto of = [&]<int kGroups>() {
      return pieces.ring == kStages[0] ? stream_kernel<NT, CellRing<U, kStages[0], kGroups>>
                                       : stream_kernel<NT, CellRing<U, kStages[1], kGroups>>;
    };
    const int groups = kCellInputs >> layout.group_log;
    if constexpr (U::kGroup == 0)
      if (groups < 4) return groups == 1 ? of.template operator()<1>() : of.template operator()<2>();
    return of.template operator()<4>();
  }
}

}  // namespace

std::array<StreamPieces, 2> coded_pieces(const PackedMatrix& m) {
  const int cell = m.layout.cell;
  if (bits_of(m.layout.code) == 4) return {{{kStages[0], 128, 2 * cell, true}, {kStages[1], 128, 2 * cell, true}}};
  return {{{ring_of(256), 256, 4 * cell}, {ring_of(128), 128, 2 * cell}}};
}

void launch_coded(cudaStream_t stream, const Grid& grid, const StreamPlan& plan, const Stream& a,
                  const PackedMatrix& m) {
  const CodedMatrix matrix{m.data(), m.layout};
  with_unpack(m.layout, [&]<class U>(U) {
    launch_kernel("a product", stream, grid,
                  a.rows <= 8 ? kernel_of<U, 1>(plan.pieces, m.layout) : kernel_of<U, 2>(plan.pieces, m.layout), a,
                  matrix);
  });
}

}  // namespace foretoken

// The streamed product of packed matrices: bytes: bits / 8 for each weight and its scales, once. For each pair of
// weights some 4 (bf16 scales) to 10 instructions beside the product's.
#include "kernels/cuda/products/stream_cells.cuh"
#include "kernels/cuda/products/stream_codes.cuh"
#include "kernels/cuda/products/stream_kernel.cuh"

namespace foretoken {
namespace {

// Codes of 4 bits but those of a table: stages of a ring that lanes fill, for few warps and for many.
constexpr int kStages[] = {8, 4};
constexpr bool lanes_copy(Code code) { return code == Code::int4 || code == Code::e2m1; }
// The others: stages by inputs of a piece: with 256, a piece has less work beside its products. Codes of a table are
// not read faster where lanes copy them: looking them up takes the time.
template <int kBits> constexpr int ring_of(int inputs) {
  return kBits == 4 ? (inputs == 256 ? 5 : 8) : inputs == 256 ? 3 : 5;
}

template <class U, int NT> StreamKernel<CodedMatrix> kernel_of(const StreamPieces& pieces, const PackedLayout& layout) {
  if constexpr (!lanes_copy(U::kCode)) {
    constexpr auto kRing = ring_of<bits_of(U::kCode)>;
    return pieces.piece == 256 ? stream_kernel<NT, Ring<CodedPieces<U, kRing(256), 256>>>
                               : stream_kernel<NT, Ring<CodedPieces<U, kRing(128), 128>>>;
  } else {
    const auto of = [&]<bool kOneGroup>() {
      return pieces.ring == kStages[0] ? stream_kernel<NT, CellRing<U, kStages[0], kOneGroup>>
                                       : stream_kernel<NT, CellRing<U, kStages[1], kOneGroup>>;
    };
    return 1 << layout.group_log == kCellInputs ? of.template operator()<true>() : of.template operator()<false>();
  }
}

}  // namespace

std::array<StreamPieces, 2> coded_pieces(const PackedMatrix& m) {
  const int cell = m.layout.cell;
  if (lanes_copy(m.layout.code)) return {{{kStages[0], 128, 2 * cell, true}, {kStages[1], 128, 2 * cell, true}}};
  const auto ring = bits_of(m.layout.code) == 4 ? ring_of<4> : ring_of<8>;
  return {{{ring(256), 256, 4 * cell}, {ring(128), 128, 2 * cell}}};
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

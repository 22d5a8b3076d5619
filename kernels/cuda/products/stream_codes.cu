// The streamed product of packed matrices: bytes: bits / 8 for each weight and its scales, once. For each pair of
// weights some 4 (bf16 scales) to 10 instructions beside the product's.
#include "kernels/cuda/products/stream_codes.cuh"
#include "kernels/cuda/products/stream_kernel.cuh"

namespace foretoken {
namespace {

// Stages of a ring by inputs of a piece: with 256, a piece has less work beside its products.
template <int kBits> constexpr int ring_of(int inputs) {
  return kBits == 4 ? (inputs == 256 ? 5 : 8) : inputs == 256 ? 3 : 5;
}

template <class U, int NT> StreamKernel<CodedMatrix> kernel_of(int inputs) {
  constexpr auto kRing = ring_of<bits_of(U::kCode)>;
  return inputs == 256 ? stream_kernel<NT, CodedPieces<U, kRing(256), 256>>
                       : stream_kernel<NT, CodedPieces<U, kRing(128), 128>>;
}

}  // namespace

std::array<StreamPieces, 2> coded_pieces(const PackedMatrix& m) {
  const auto ring = bits_of(m.layout.code) == 4 ? ring_of<4> : ring_of<8>;
  return {{{ring(256), 256, 4 * m.layout.cell}, {ring(128), 128, 2 * m.layout.cell}}};
}

void launch_coded(cudaStream_t stream, const Grid& grid, const StreamPlan& plan, const Stream& a,
                  const PackedMatrix& m) {
  const CodedMatrix matrix{m.data(), m.layout};
  with_unpack(m.layout, [&]<class U>(U) {
    launch_kernel("a product", stream, grid,
                  a.rows <= 8 ? kernel_of<U, 1>(plan.pieces.piece) : kernel_of<U, 2>(plan.pieces.piece), a, matrix);
  });
}

}  // namespace foretoken

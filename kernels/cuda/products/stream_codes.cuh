// Pieces of a matrix packed in codes of 8 bits, for a streamed product (Ring of stream_ring.cuh): 128 or
// 256 inputs of 16 outputs, cells of packed_matrix.cuh. The codes become bf16 numbers in the registers that tensor
// cores read. The copy engine copies a piece: cheaper in instructions than copies of the lanes, and no slower where
// pieces are 4 KB. This header must not know what they are used for.
#pragma once
#include "kernels/cuda/products/matrix_boxes.cuh"
#include "kernels/cuda/products/stream_cells.cuh"
#include "kernels/cuda/products/stream_ring.cuh"

namespace foretoken {

// U: an Unpack of codes.cuh. A stage: [kInputs / 128, 2] cells.
template <class U, int kRingOf, int kInputsOf> class CodedPieces {
 public:
  using Matrix = CodedMatrix;
  static constexpr int kRing = kRingOf, kInputs = kInputsOf;
  static __device__ int bytes(const Matrix& m) { return kCells * m.layout.cell; }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

  static constexpr bool kCanPoll = true;
  __device__ CodedPieces(const Stream& a, const Matrix& m, void* barriers)
      : a_(a), m_(m), stages_(barriers, 1), policy_(read_once()) {}
  __device__ void request(int stage, unsigned to, int k, int tile) {
    if (threadIdx.x % 32 != 0) return;
    expect_copies(stages_.at(stage), kCells * m_.layout.cell);
    for_runs(to, k, tile, [&](unsigned at, const unsigned char* from, int size) {
      copy_bytes(at, from, size, stages_.at(stage), policy_);
    });
  }
  __device__ void skip() {}

#else

  static constexpr bool kCanPoll = false;
  __device__ CodedPieces(const Stream& a, const Matrix& m, void* barriers)
      : a_(a), m_(m), stages_(barriers, 0), policy_(read_once()) {}
  __device__ void request(int, unsigned to, int k, int tile) {
    for_runs(to, k, tile, [&](unsigned at, const unsigned char* from, int size) {
      for (int i = int(threadIdx.x) % 32 * 16; i < size; i += 32 * 16)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(at + unsigned(i)),
                     "l"(from + i), "l"(policy_)
                     : "memory");
    });
    skip();
  }
  __device__ void skip() { stages_.skip(); }

#endif

  __device__ static void prepare(const Matrix&) {}
  __device__ void wait(int stage, int round) const { stages_.wait(stage, round); }
  __device__ bool arrived(int stage, int round) const { return stages_.arrived(stage, round); }

  template <int NT>
  __device__ void multiply(float (&sum)[NT][4], unsigned piece, const unsigned (&x)[NT], int k, int lane) const {
    const auto all = [&]<bool kOneGroup>() {
#pragma unroll
      for (int j = 0; j < kInputs / kCellInputs; ++j)
        multiply_cells<kOneGroup>(sum, piece + unsigned(2 * j * m_.layout.cell), x, k + j * kCellInputs, lane);
    };
    if (1 << m_.layout.group_log == kCellInputs)
      all.template operator()<true>();
    else
      all.template operator()<false>();
  }

 private:
  static constexpr int kCells = kInputs / kCellInputs * 2;
  static_assert(bits_of(U::kCode) == 8);

  // kOneGroup: all inputs of a cell share a scale.
  template <bool kOneGroup, int NT>
  __device__ void multiply_cells(float (&sum)[NT][4], unsigned cells, const unsigned (&x)[NT], int k, int lane) const {
    constexpr int kWords = bits_of(U::kCode), kWordInputs = kCellInputs / kWords;
    const unsigned cell = unsigned(m_.layout.cell),
                   scales = cells + unsigned(code_bytes(U::kCode) + lane / 4 * bytes_of(U::kForm));
    const auto scale = [&](int i, int w) {
      const unsigned group = unsigned((w * kWordInputs >> m_.layout.group_log) * kCellOutputs * bytes_of(U::kForm));
      return Scale<U::kForm>(SharedBytes{scales + unsigned(i) * cell + group});
    };
    Scale<U::kForm> shared[2] = {scale(0, 0), scale(1, 0)};
    unsigned words[2][4], b[NT][4];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if (w % 4 == 0)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          load_words(words[i], cells + unsigned(i) * cell + unsigned(w / 4 * 512 + lane * 16));
      Pair pairs[2][U::kPairs];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!kOneGroup && w > 0) shared[i] = scale(i, w);
        U::word(pairs[i], words[i][w % 4], shared[i], LaneNumbers<U::kCode>(SharedBytes{}));
      }
#pragma unroll
      for (int s = 0; s < kWordInputs / 16; ++s) {
        const int step = w * (kWordInputs / 16) + s;
        const unsigned a[4] = {pairs[0][2 * s], pairs[1][2 * s], pairs[0][2 * s + 1], pairs[1][2 * s + 1]};
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          if (step % 2 == 0) load_matrices(b[n], x[n] + unsigned((k + step * 16) * 2));
          multiply_add(sum[n], a, b[n][step % 2 * 2], b[n][step % 2 * 2 + 1]);
        }
      }
    }
  }
  // Calls copy(to, from, bytes) for the runs of cells of a piece: of a gated product those of the first half of the
  // outputs, then those of the second.
  template <class F> __device__ void for_runs(unsigned to, int k, int tile, F copy) const {
    const int cell = m_.layout.cell;
#pragma unroll
    for (int j = 0; j < kInputs / kCellInputs; ++j) {
      const unsigned at = to + unsigned(2 * j * cell);
      const unsigned char* const from = m_.cells + m_.layout.at(k / kCellInputs + j, a_.to.gated ? tile : 2 * tile);
      if (a_.to.gated)
        copy(at, from, cell), copy(at + unsigned(cell), from + m_.layout.eights / 2 * cell, cell);
      else
        copy(at, from, 2 * cell);
    }
  }
  __device__ static void load_words(unsigned (&w)[4], unsigned at) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(at)
                 : "memory");
  }

  const Stream& a_;
  const Matrix& m_;
  StageBarriers<kRing> stages_;
  std::uint64_t policy_;
};

}  // namespace foretoken

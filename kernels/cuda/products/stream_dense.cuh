// Pieces of a bf16 matrix for a streamed product (Ring of stream_ring.cuh): kInputs inputs of 16 outputs, in boxes of
// 64 inputs, rows of 128 bytes, swizzled so that eight rows of one column are in different banks. Short pieces are
// copied by TMA, box by box, issued by one lane; long pieces are copied in runs by cp.async of all lanes, which reaches
// a higher memory bandwidth. This header must not know what they are used for.
#pragma once
#include "kernels/cuda/products/matrix_boxes.cuh"
#include "kernels/cuda/products/stream_ring.cuh"

namespace foretoken {

constexpr int kBox = 16 * kBoxInputs * 2;  // bytes
constexpr bool comes_in_runs(int piece) { return piece >= 256; }
constexpr int piece_bytes(int piece) { return piece / kBoxInputs * kBox; }

// Copies inputs from k on of 16 neighbouring outputs, or of 8 outputs of the gate and the corresponding 8 of the other
// half, 16 bytes a lane: the copies of a warp are contiguous.
template <int kPiece>
__device__ inline void copy_runs(const Stream& a, const Bf16* w, unsigned to, int k, int tile, std::uint64_t policy) {
  constexpr int kChunks = kPiece / 8, kRows = 32 / kChunks;  // rows of one instruction
  const int lane = int(threadIdx.x) % 32, c = lane % kChunks, first = lane / kChunks;
  // `second`: where the other eight outputs begin.
  const int begin = tile * (a.to.gated ? 8 : 16) + first, second = a.to.gated ? a.out / 2 : 8;
  const std::int64_t row = 2 * std::int64_t(a.in);
  const char* from = reinterpret_cast<const char*>(w + k + c * 8) + begin * row;
  const unsigned at = to + unsigned(c / 8 * kBox);
#pragma unroll
  for (int i = 0; i < 16; i += kRows) {
    // 0 bytes are read of outputs after the last, which become zeros.
    const int r = i + first, bytes = begin + (i < 8 ? i : i - 8 + second) < a.out ? 16 : 0;
    if (i == 8) from += (second - 8) * row;
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                     at + unsigned(r * 128 + ((c ^ r) % 8) * 16)),
                 "l"(from), "r"(bytes), "l"(policy)
                 : "memory");
    from += kRows * row;
  }
}

struct DenseOperand {
  CUtensorMap map;  // on architecture 90, where pieces do not come in runs
  const Bf16* w;
};

template <int kRingOf, int kPiece> class DensePieces {
 public:
  using Matrix = DenseOperand;
  static constexpr int kRing = kRingOf, kInputs = kPiece;
  static __host__ __device__ constexpr int bytes(const Matrix&) { return piece_bytes(kPiece); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

  static constexpr bool kCanPoll = true;
  __device__ DensePieces(const Stream& a, const Matrix& m, void* barriers)
      : a_(a), m_(m), stages_(barriers, comes_in_runs(kPiece) ? 32 : 1), policy_(read_once()) {}
  __device__ void request(int stage, unsigned to, int k, int tile) {
    if constexpr (comes_in_runs(kPiece)) {
      copy_runs<kPiece>(a_, m_.w, to, k, tile, policy_);
      arrive_behind_copies(stages_.at(stage));
    } else if (threadIdx.x % 32 == 0) {
      expect_copies(stages_.at(stage), piece_bytes(kPiece));
#pragma unroll
      for (int j = 0; j < kPiece / kBoxInputs; ++j)
        if (a_.to.gated)
          copy_gated_box(to + unsigned(j * kBox), m_.map, k + j * kBoxInputs, tile, stages_.at(stage), policy_);
        else
          copy_box(to + unsigned(j * kBox), m_.map, k + j * kBoxInputs, 16 * tile, stages_.at(stage), policy_);
    }
  }
  __device__ void skip() {}

#else

  static constexpr bool kCanPoll = false;  // always in runs
  __device__ DensePieces(const Stream& a, const Matrix& m, void* barriers)
      : a_(a), m_(m), stages_(barriers, 0), policy_(read_once()) {}
  __device__ void request(int, unsigned to, int k, int tile) {
    copy_runs<kPiece>(a_, m_.w, to, k, tile, policy_);
    skip();
  }
  __device__ void skip() { stages_.skip(); }

#endif

  __device__ static void prepare(const Matrix& m) {
    if (!comes_in_runs(kPiece) && threadIdx.x == 0) fetch_map(m.map);
  }
  __device__ void wait(int stage, int round) const { stages_.wait(stage, round); }
  __device__ bool arrived(int stage, int round) const { return stages_.arrived(stage, round); }

  template <int NT>
  __device__ static void multiply(float (&sum)[NT][4], unsigned piece, const unsigned (&x)[NT], int k, int lane) {
    constexpr int kSteps = kPiece / 16;
    const unsigned at = piece + unsigned(lane % 16 * 128), half = unsigned(lane / 16), row = unsigned(lane % 8);
    unsigned w[kSteps][4], b[NT][kSteps / 2][4];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      load_matrices(w[s], at + unsigned(s / 4 * 2048) + (((unsigned(s % 4 * 2) + half) ^ row) << 4));
      if (s % 2 == 0)
#pragma unroll
        for (int n = 0; n < NT; ++n) load_matrices(b[n][s / 2], x[n] + unsigned((k + s * 16) * 2));
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int n = 0; n < NT; ++n) multiply_add(sum[n], w[s], b[n][s / 2][s % 2 * 2], b[n][s / 2][s % 2 * 2 + 1]);
  }

 private:
  const Stream& a_;
  const Matrix& m_;
  StageBarriers<kRing> stages_;
  std::uint64_t policy_;
};

}  // namespace foretoken

// Copies pieces of a matrix to shared memory, several ahead of the products: kPiece inputs of 16 outputs, in boxes of
// 64 inputs, rows of 128 bytes, swizzled so that eight rows of one column are in different banks. Short pieces are
// copied by TMA, box by box, issued by one lane; long pieces are copied in runs by cp.async of all lanes, which reaches
// a higher memory bandwidth. This header must not know what they are used for.
#pragma once
#include "kernels/cuda/instructions/barriers.cuh"
#include "kernels/cuda/products/matrix_boxes.cuh"
#include "kernels/cuda/products/stream_input.cuh"

namespace foretoken {

constexpr int kBox = 16 * kBoxInputs * 2, kBoxAlignment = 1024;  // bytes
constexpr bool comes_in_runs(int piece) { return piece >= 256; }
constexpr int piece_bytes(int piece) { return piece / kBoxInputs * kBox; }
constexpr int ring_barriers(int ring) { return (8 * ring + 15) / 16 * 16; }  // bytes

// Copies inputs from k on of 16 neighbouring outputs, or of 8 outputs of the gate and the corresponding 8 of the other
// half, 16 bytes a lane: the copies of a warp are contiguous.
template <int kPiece>
__device__ inline void copy_runs(const Stream& a, unsigned to, int k, int tile, std::uint64_t policy) {
  constexpr int kChunks = kPiece / 8, kRows = 32 / kChunks;  // rows of one instruction
  const int lane = int(threadIdx.x) % 32, c = lane % kChunks, first = lane / kChunks;
  // `second`: where the other eight outputs begin.
  const int begin = tile * (a.gated ? 8 : 16) + first, second = a.gated ? a.out / 2 : 8;
  const std::int64_t row = 2 * std::int64_t(a.in);
  const char* from = reinterpret_cast<const char*>(a.w + k + c * 8) + begin * row;
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

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The copies of one warp to kRing stages, each with a barrier that counts bytes (TMA) or 32 lanes (cp.async).
template <int kRing, int kPiece> class Pieces {
 public:
  static constexpr bool kCanPoll = true;  // arrival can be polled without waiting
  __device__ Pieces(const Stream& a, const CUtensorMap& map, void* barriers)
      : a_(a), map_(map), barriers_(shared_address(barriers)), policy_(read_once()) {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < kRing; ++i) init_barrier(barrier(i), comes_in_runs(kPiece) ? 32 : 1);
      fence_barriers();
    }
    __syncwarp();
  }
  // Requires that all lanes have read the previous contents of `stage`.
  __device__ void request(int stage, unsigned to, int k, int tile) {
    if constexpr (comes_in_runs(kPiece)) {
      copy_runs<kPiece>(a_, to, k, tile, policy_);
      arrive_behind_copies(barrier(stage));
    } else if (threadIdx.x % 32 == 0) {
      expect_copies(barrier(stage), piece_bytes(kPiece));
#pragma unroll
      for (int j = 0; j < kPiece / kBoxInputs; ++j)
        if (a_.gated)
          copy_gated_box(to + unsigned(j * kBox), map_, k + j * kBoxInputs, tile, barrier(stage), policy_);
        else
          copy_box(to + unsigned(j * kBox), map_, k + j * kBoxInputs, 16 * tile, barrier(stage), policy_);
    }
  }
  __device__ void skip() {}
  // Waits for the latest copy to `stage`; `round`: number of copies to the stage before it.
  __device__ void wait(int stage, int round) const { wait_barrier(barrier(stage), round & 1); }
  __device__ bool arrived(int stage, int round) const { return barrier_passed(barrier(stage), round & 1); }

 private:
  __device__ unsigned barrier(int stage) const { return barriers_ + 8u * unsigned(stage); }

  const Stream& a_;
  const CUtensorMap& map_;
  unsigned barriers_;
  std::uint64_t policy_;
};

#else

// The same on architecture 80, always in runs: one group of copies for every piece that is requested or skipped, kRing
// of them before the first wait.
template <int kRing, int kPiece> class Pieces {
 public:
  static constexpr bool kCanPoll = false;
  __device__ Pieces(const Stream& a, const CUtensorMap&, void*) : a_(a), policy_(read_once()) {}
  __device__ void request(int, unsigned to, int k, int tile) {
    copy_runs<kPiece>(a_, to, k, tile, policy_);
    skip();
  }
  __device__ void skip() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  __device__ void wait(int, int) const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kRing - 1) : "memory");
    __syncwarp();
  }
  __device__ bool arrived(int, int) const { return true; }

 private:
  const Stream& a_;
  std::uint64_t policy_;
};

#endif

// The pieces of a warp's tiles in order: first along the inputs, then the next tile, `stride` tiles further.
template <int kRing, int kPiece> class Ring {
 public:
  static constexpr bool kCanPoll = Pieces<kRing, kPiece>::kCanPoll;

  __device__ Ring(const Stream& a, const CUtensorMap& map, unsigned char* memory, void* barriers, int tile, int k0)
      : a_(a), pieces_(a, map, barriers), memory_(shared_address(memory)), k0_(k0), tile_(tile) {}

  // start() requests the first pieces: `window` of them (before architecture 90: all that fit). fill() requests the
  // others, `window` in flight at a time, until the ring is full or `over` returns true. More in flight would delay the
  // loads of x, for which the kernel waits meanwhile.
  __device__ void start(int window) {
    for (int i = 0; i < (kCanPoll ? min(window, kRing) : kRing); ++i) request();
  }
  template <class Over> __device__ void fill(int window, Over over) {
    for (int landed = 0; ahead_ < kRing && remain() && !over();)
      if (ahead_ - landed < window)
        request();
      else if (pieces_.arrived(landed, 0))
        ++landed;
  }
  // Waits for the oldest piece; returns its address in shared memory.
  __device__ unsigned wait_oldest() const {
    pieces_.wait(taken_, round_);
    return memory_ + unsigned(taken_ * piece_bytes(kPiece));
  }
  // Releases the oldest piece, which all lanes have read: requests the next piece into its stage, and those that fill()
  // did not request.
  __device__ void release() {
    if (++taken_ == kRing) taken_ = 0, ++round_;
    --ahead_;
    request();
#pragma unroll 1
    while (ahead_ < kRing && remain()) request();
  }

 private:
  __device__ bool remain() const { return tile_ < a_.tiles; }
  __device__ void request() {
    if (!remain()) return pieces_.skip();
    pieces_.request(requested_, memory_ + unsigned(requested_ * piece_bytes(kPiece)), k0_ + k_, tile_);
    if (++requested_ == kRing) requested_ = 0;
    ++ahead_, k_ += kPiece;
    if (k_ == a_.slice) k_ = 0, tile_ += a_.stride;
  }

  const Stream& a_;
  Pieces<kRing, kPiece> pieces_;
  unsigned memory_;
  int k0_, tile_, k_ = 0, requested_ = 0, taken_ = 0, round_ = 0, ahead_ = 0;  // ahead: requested and not released yet
};

}  // namespace foretoken

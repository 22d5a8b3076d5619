// Pieces of a matrix on their way into shared memory, several ahead of who multiplies them: kPiece inputs of 16
// outputs, in boxes of 64 inputs, rows of 128 bytes, swizzled so that eight rows of one column lie in different banks.
// Box by box by the copy engine, which one lane asks in an instant, 128 bytes of a row behind those of another; or,
// where they are long, in runs by the lanes' own copies, which the memory answers faster. This header must not know
// what they are for.
#pragma once
#include "kernels/cuda/instructions/barriers.cuh"
#include "kernels/cuda/products/matrix_boxes.cuh"
#include "kernels/cuda/products/stream_input.cuh"

namespace foretoken {

constexpr int kBox = 16 * kBoxInputs * 2, kBoxAlignment = 1024;  // bytes
constexpr bool comes_in_runs(int piece) { return piece >= 256; }
constexpr int piece_bytes(int piece) { return piece / kBoxInputs * kBox; }
constexpr int ring_barriers(int ring) { return (8 * ring + 15) / 16 * 16; }  // bytes

// Inputs from k on of 16 neighbours, or of 8 of the gate and the same 8 of what it gates, by copies of 16 bytes: a
// warp's lie behind one another.
template <int kPiece>
__device__ inline void copy_runs(const Stream& a, unsigned to, int k, int tile, std::uint64_t policy) {
  constexpr int kChunks = kPiece / 8, kRows = 32 / kChunks;  // of one instruction
  const int lane = int(threadIdx.x) % 32, c = lane % kChunks, first = lane / kChunks;
  const int begin = tile * (a.gated ? 8 : 16) + first,
            second = a.gated ? a.out / 2 : 8;  // and where the other eight begin
  const std::int64_t row = 2 * std::int64_t(a.in);
  const char* from = reinterpret_cast<const char*>(a.w + k + c * 8) + begin * row;
  const unsigned at = to + unsigned(c / 8 * kBox);
#pragma unroll
  for (int i = 0; i < 16; i += kRows) {
    const int r = i + first,
              bytes = begin + (i < 8 ? i : i - 8 + second) < a.out ? 16 : 0;  // of rows behind the last: zeros
    if (i == 8) from += (second - 8) * row;
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                     at + unsigned(r * 128 + ((c ^ r) % 8) * 16)),
                 "l"(from), "r"(bytes), "l"(policy)
                 : "memory");
    from += kRows * row;
  }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The copies of one warp into kRing places, each with a barrier: of its bytes, or of 32 lanes.
template <int kRing, int kPiece> class Pieces {
 public:
  static constexpr bool kCanPoll = true;  // what has come, without waiting
  __device__ Pieces(const Stream& a, const CUtensorMap& map, void* barriers)
      : a_(a), map_(map), barriers_(shared_address(barriers)), policy_(read_once()) {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < kRing; ++i) init_barrier(barrier(i), comes_in_runs(kPiece) ? 32 : 1);
      fence_barriers();
    }
    __syncwarp();
  }
  // All lanes have read what was at `place`.
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
  // Until what was asked for last into `place` is there; `round`: how often the place was asked for before.
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

// The same on architecture 80, always in runs: a group for every piece that is asked for or skipped, kRing of them
// before the first wait.
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

// The pieces of a warp's tiles in order: the next inputs, then the next tile, `stride` of them further.
template <int kRing, int kPiece> class Ring {
 public:
  static constexpr bool kCanPoll = Pieces<kRing, kPiece>::kCanPoll;

  __device__ Ring(const Stream& a, const CUtensorMap& map, unsigned char* memory, void* barriers, int tile, int k0)
      : a_(a), pieces_(a, map, barriers), memory_(shared_address(memory)), k0_(k0), tile_(tile) {}

  // Asks for the first pieces: `window` of them (before architecture 90: all that fit); fill() for the others, `window`
  // under way at a time, until the ring is full or `over` says so. What the kernel waits for meanwhile would queue
  // behind more.
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
  // Waits for the oldest piece; its address.
  __device__ unsigned wait_oldest() const {
    pieces_.wait(taken_, round_);
    return memory_ + unsigned(taken_ * piece_bytes(kPiece));
  }
  // All lanes are done with that piece: asks for the next into its stage, and for one that fill() left.
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
  int k0_, tile_, k_ = 0, requested_ = 0, taken_ = 0, round_ = 0, ahead_ = 0;  // ahead: asked for and not left yet
};

}  // namespace foretoken

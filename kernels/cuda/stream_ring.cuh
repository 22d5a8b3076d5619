// Pieces of a matrix on their way into shared memory, several ahead of who multiplies them: kPiece inputs of 16 outputs, in boxes of 64
// inputs, rows of 128 bytes, turned so that eight rows of one column lie in different banks. This room must not know what they are for.
#pragma once
#include "kernels/cuda/barriers.cuh"
#include "kernels/cuda/matrix_boxes.cuh"
#include "kernels/cuda/stream_input.cuh"

namespace foretoken {

constexpr int kBox = 16 * kBoxInputs * 2, kBoxAlignment = 1024;  // bytes
constexpr int piece_bytes(int piece) { return piece / kBoxInputs * kBox; }
constexpr int ring_barriers(int ring) { return (8 * ring + 15) / 16 * 16; }  // bytes

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The copies of one warp into kRing places, each with a barrier that counts its bytes.
template <int kRing, int kPiece> class Pieces {
 public:
  static constexpr bool kTells = true;  // what has come, without waiting
  __device__ Pieces(const Stream& a, const CUtensorMap& map, void* barriers) : map_(map), gated_(a.gated), barriers_(shared_address(barriers)), policy_(read_once()) {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < kRing; ++i) open_barrier(barrier(i), 1);
      show_barriers();
    }
    __syncwarp();
  }
  // Inputs from k on of 16 neighbours, or of 8 of the gate and the same 8 of what it gates. All lanes have read what was at `place`.
  __device__ void ask(int place, unsigned to, int k, int tile) {
    if (threadIdx.x % 32 != 0) return;
    expect_copies(barrier(place), piece_bytes(kPiece));
#pragma unroll
    for (int j = 0; j < kPiece / kBoxInputs; ++j)
      if (gated_) copy_gated_box(to + unsigned(j * kBox), map_, k + j * kBoxInputs, tile, barrier(place), policy_);
      else copy_box(to + unsigned(j * kBox), map_, k + j * kBoxInputs, 16 * tile, barrier(place), policy_);
  }
  __device__ void skip() {}
  // Until what was asked for last into `place` is there; `round`: how often the place was asked for before.
  __device__ void wait(int place, int round) const { wait_barrier(barrier(place), round & 1); }
  __device__ bool came(int place, int round) const { return barrier_passed(barrier(place), round & 1); }

 private:
  __device__ unsigned barrier(int place) const { return barriers_ + 8u * unsigned(place); }

  const CUtensorMap& map_;
  bool gated_;
  unsigned barriers_;
  std::uint64_t policy_;
};

#else

// The same by the copies of architecture 80, 16 bytes each: a group for every piece that is asked for or skipped, kRing of them before
// the first wait.
template <int kRing, int kPiece> class Pieces {
 public:
  static constexpr bool kTells = false;
  __device__ Pieces(const Stream& a, const CUtensorMap&, void*) : a_(a) {}
  __device__ void ask(int, unsigned to, int k, int tile) {
    const int lane = int(threadIdx.x) % 32, r = lane % 16, half = lane / 16;
    const int row = a_.gated ? tile * 8 + r % 8 + r / 8 * (a_.out / 2) : tile * 16 + r;
    const Bf16* const from = a_.w + std::int64_t(min(row, a_.out - 1)) * a_.in + k;
    for (int c = half; c < kPiece / 8; c += 2)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + unsigned(c / 8 * kBox + r * 128 + (c % 8 ^ r % 8) * 16)), "l"(from + c * 8) : "memory");
    skip();
  }
  __device__ void skip() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  __device__ void wait(int, int) const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kRing - 1) : "memory");
    __syncwarp();
  }
  __device__ bool came(int, int) const { return true; }

 private:
  const Stream& a_;
};

#endif

// The pieces of a warp's tiles in order: the next inputs, then the next tile, `stride` of them further.
template <int kRing, int kPiece> class Ring {
 public:
  static constexpr bool kTells = Pieces<kRing, kPiece>::kTells;

  __device__ Ring(const Stream& a, const CUtensorMap& map, unsigned char* memory, void* barriers, int tile, int k0)
      : a_(a), pieces_(a, map, barriers), memory_(shared_address(memory)), k0_(k0), tile_(tile) {}

  // Asks for the first pieces: `window` of them (before architecture 90: all that fit); fill() for the others, `window` under way at a
  // time, until the ring is full or `over` says so. What the kernel waits for meanwhile would queue behind more.
  __device__ void start(int window) {
    for (int i = 0; i < (kTells ? min(window, kRing) : kRing); ++i) ask();
  }
  template <class Over> __device__ void fill(int window, Over over) {
    for (int landed = 0; ahead_ < kRing && left() && !over();)
      if (ahead_ - landed < window) ask();
      else if (pieces_.came(landed, 0)) ++landed;
  }
  // Waits for the oldest piece; its address.
  __device__ unsigned take() const {
    pieces_.wait(taken_, round_);
    return memory_ + unsigned(taken_ * piece_bytes(kPiece));
  }
  // All lanes are done with that piece: asks for the next into its place, and for one that fill() left.
  __device__ void leave() {
    if (++taken_ == kRing) taken_ = 0, ++round_;
    --ahead_;
    ask();
    if (ahead_ < kRing && left()) ask();
  }

 private:
  __device__ bool left() const { return tile_ < a_.tiles; }
  __device__ void ask() {
    if (!left()) return pieces_.skip();
    pieces_.ask(asked_, memory_ + unsigned(asked_ * piece_bytes(kPiece)), k0_ + k_, tile_);
    if (++asked_ == kRing) asked_ = 0;
    ++ahead_, k_ += kPiece;
    if (k_ == a_.slice) k_ = 0, tile_ += a_.stride;
  }

  const Stream& a_;
  Pieces<kRing, kPiece> pieces_;
  unsigned memory_;
  int k0_, tile_, k_ = 0, asked_ = 0, taken_ = 0, round_ = 0, ahead_ = 0;  // ahead: asked for and not left yet
};

}  // namespace foretoken

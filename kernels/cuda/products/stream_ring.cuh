// The ring of pieces of one warp of a streamed product: stages in shared memory that are filled several pieces ahead of
// the products. A piece is kInputs inputs of 16 outputs, in whatever form P reads them: stream_dense.cuh,
// stream_codes.cuh. P has
//   Matrix                       what the kernel is given of the matrix
//   kRing, kInputs, bytes(m)     stages, inputs of a piece, bytes of a stage
//   prepare(m)                   called by all threads before the first synchronization of the block
//   kCanPoll                     arrival can be polled without waiting (architecture 90)
//   request(stage, to, k, tile)  copies a piece; all lanes have read the previous contents of the stage
//   skip()                       in place of a request where no piece remains
//   wait(stage, round), arrived(stage, round)   for the latest copy to the stage; `round`: copies before it
//   multiply(sum, piece, x, k, lane)            one piece times the rows of x
// This header must not know what they are used for.
#pragma once
#include "kernels/cuda/instructions/barriers.cuh"
#include "kernels/cuda/products/stream_input.cuh"

namespace foretoken {

constexpr int ring_barriers(int ring) { return (8 * ring + 15) / 16 * 16; }  // bytes

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// One barrier for each stage, with `arrivals` arrivals.
template <int kRing> class StageBarriers {
 public:
  __device__ StageBarriers(void* barriers, int arrivals) : barriers_(shared_address(barriers)) {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < kRing; ++i) init_barrier(at(i), arrivals);
      fence_barriers();
    }
    __syncwarp();
  }
  __device__ unsigned at(int stage) const { return barriers_ + 8u * unsigned(stage); }
  __device__ void wait(int stage, int round) const { wait_barrier(at(stage), round & 1); }
  __device__ bool arrived(int stage, int round) const { return barrier_passed(at(stage), round & 1); }

 private:
  unsigned barriers_;
};

#else

// On architecture 80 the pieces are groups of cp.async copies: one group for every piece that is requested or skipped,
// kRing of them before the first wait.
template <int kRing> class StageBarriers {
 public:
  __device__ StageBarriers(void*, int) {}
  __device__ void skip() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  __device__ void wait(int, int) const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kRing - 1) : "memory");
    __syncwarp();
  }
  __device__ bool arrived(int, int) const { return true; }
};

#endif

// The pieces of a warp's tiles in order: first along the inputs, then the next tile, `stride` tiles further.
template <class P> class Ring {
 public:
  using Matrix = typename P::Matrix;
  static constexpr bool kCanPoll = P::kCanPoll;
  static constexpr int kInputs = P::kInputs, kBarriers = ring_barriers(P::kRing);
  static constexpr bool kInTurns = false;
  static __host__ __device__ constexpr int bytes(const Matrix& m) { return P::kRing * P::bytes(m); }
  __device__ static void prepare(const Matrix& m) { P::prepare(m); }

  __device__ Ring(const Stream& a, const typename P::Matrix& m, unsigned char* memory, void* barriers, int tile, int k0)
      : a_(a), pieces_(a, m, barriers), bytes_(P::bytes(m)), memory_(shared_address(memory)), k0_(k0), tile_(tile) {}

  // start() requests the first pieces: `window` of them (before architecture 90: all that fit). fill() requests the
  // others, `window` in flight at a time, until the ring is full or `over` returns true. More in flight would delay the
  // loads of x, for which the kernel waits meanwhile.
  __device__ void start(int window) {
    for (int i = 0; i < (kCanPoll ? min(window, P::kRing) : P::kRing); ++i) request();
  }
  template <class Over> __device__ void fill(int window, Over over) {
    for (int landed = 0; ahead_ < P::kRing && remain() && !over();)
      if (ahead_ - landed < window)
        request();
      else if (pieces_.arrived(landed, 0))
        ++landed;
  }
  __device__ void begin(int) {}
  // The oldest piece times the rows of x from input k on; its stage is filled again.
  template <int NT> __device__ void multiply_next(float (&sum)[NT][4], const unsigned (&x)[NT], int k, int lane) {
    multiply(sum, wait_oldest(), x, k, lane);
    __syncwarp();
    release();
  }

 private:
  // Waits for the oldest piece; returns its address in shared memory.
  __device__ unsigned wait_oldest() const {
    pieces_.wait(taken_, round_);
    return memory_ + unsigned(taken_ * bytes_);
  }
  // One piece, at the address that wait_oldest() returned, times the rows of x.
  template <int NT>
  __device__ void multiply(float (&sum)[NT][4], unsigned piece, const unsigned (&x)[NT], int k, int lane) const {
    pieces_.multiply(sum, piece, x, k, lane);
  }
  // Releases the oldest piece, which all lanes have read: requests the next piece into its stage, and those that fill()
  // did not request.
  __device__ void release() {
    if (++taken_ == P::kRing) taken_ = 0, ++round_;
    --ahead_;
    request();
#pragma unroll 1
    while (ahead_ < P::kRing && remain()) request();
  }

  __device__ bool remain() const { return tile_ < a_.tiles; }
  __device__ void request() {
    if (!remain()) return pieces_.skip();
    pieces_.request(requested_, memory_ + unsigned(requested_ * bytes_), k0_ + k_, tile_);
    if (++requested_ == P::kRing) requested_ = 0;
    ++ahead_, k_ += P::kInputs;
    if (k_ == a_.slice) k_ = 0, tile_ += a_.stride;
  }

  const Stream& a_;
  P pieces_;
  int bytes_;
  unsigned memory_;
  int k0_, tile_, k_ = 0, requested_ = 0, taken_ = 0, round_ = 0, ahead_ = 0;  // ahead: requested and not released yet
};

}  // namespace foretoken

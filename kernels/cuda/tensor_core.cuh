// The instructions behind products of small bf16 tiles: copies into shared memory that run on, matrices from there into registers,
// and their product. This room must not know what the tiles are.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace foretoken {

__device__ inline unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

// For what is read once: the first to leave L2.
__device__ inline std::uint64_t read_once() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The copies of one warp into N places of shared memory, each place with a barrier that counts its bytes.
template <int N> class Copies {
 public:
  static constexpr int kBarrierBytes = (8 * N + 15) / 16 * 16;
  __device__ explicit Copies(void* barriers) : barriers_(shared_address(barriers)), policy_(read_once()) {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < N; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_ + 8u * unsigned(i)) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
  }
  // Lanes 0 to 15 copy `bytes` bytes each, a multiple of 16, to place `place`. All lanes have read what was there.
  __device__ void ask(int place, unsigned to, const void* from, int bytes) {
    const unsigned barrier = barriers_ + 8u * unsigned(place);
    const int lane = int(threadIdx.x) % 32;
    if (lane == 0) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(16 * bytes) : "memory");
    __syncwarp();
    if (lane < 16)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(bytes),
                   "r"(barrier), "l"(policy_)
                   : "memory");
  }
  __device__ void skip() {}
  // Until what was asked for last into `place` is there; `round`: how often the place was asked for before.
  __device__ void wait(int place, int round) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(barriers_ + 8u * unsigned(place)),
        "r"(round & 1)
        : "memory");
  }

 private:
  unsigned barriers_;
  std::uint64_t policy_;
};

// Bytes into two places of shared memory, a copy at a time in each. Every thread of the block makes one on the same barriers
// (kBarrierBytes of shared memory), and a __syncthreads follows. Addresses, distances and sizes in 16 bytes.
class Bulk {
 public:
  static constexpr int kBarrierBytes = 16;
  __device__ explicit Bulk(void* barriers) : barriers_(shared_address(barriers)) {
    if (threadIdx.x == 0) {
      for (unsigned i = 0; i < 2; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_ + 8 * i) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
  }
  // At most 32 rows to `place`, 0 or 1. Called by all threads.
  __device__ void copy(int place, int rows, void* to, int pitch, const void* from, std::int64_t stride, int bytes) {
    const int lane = int(threadIdx.x), row = (lane + int(blockIdx.x)) % rows;  // not all blocks begin at the same bytes
    if (lane >= 32) return;
    const unsigned barrier = barriers_ + 8u * unsigned(place);
    if (lane == 0) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(rows * bytes) : "memory");
    __syncwarp();
    if (lane < rows)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to) + unsigned(row * pitch)),
                   "l"(static_cast<const char*>(from) + row * stride), "r"(bytes), "r"(barrier)
                   : "memory");
  }
  // Until the copy to `place` is there; `round`: how many copies went there before. Called by all threads.
  __device__ void wait(int place, int round) {
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(barriers_ + 8u * unsigned(place)),
                 "r"(round & 1)
                 : "memory");
  }

 private:
  unsigned barriers_;
};

#else

class Bulk {
 public:
  static constexpr int kBarrierBytes = 16;
  __device__ explicit Bulk(void*) {}
  __device__ void copy(int, int rows, void* to, int pitch, const void* from, std::int64_t stride, int bytes) {
    const int pieces = bytes / 16;
    for (int n = int(threadIdx.x); n < rows * pieces; n += int(blockDim.x)) {
      const int r = n / pieces, i = n % pieces * 16;
      *reinterpret_cast<uint4*>(static_cast<char*>(to) + r * pitch + i) = __ldcg(reinterpret_cast<const uint4*>(static_cast<const char*>(from) + r * stride + i));
    }
  }
  __device__ void wait(int, int) { __syncthreads(); }
};

// The same by the copies of architecture 80, 16 bytes each: a group for every piece.
template <int N> class Copies {
 public:
  static constexpr int kBarrierBytes = (8 * N + 15) / 16 * 16;
  __device__ explicit Copies(void*) {}
  __device__ void ask(int, unsigned to, const void* from, int bytes) {
    for (int i = 0; i < bytes && threadIdx.x % 32 < 16; i += 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + unsigned(i)), "l"(static_cast<const char*>(from) + i) : "memory");
    skip();
  }
  __device__ void skip() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  __device__ void wait(int, int) {
    asm volatile("cp.async.wait_group %0;" ::"n"(N - 2) : "memory");
    __syncwarp();
  }
};

#endif

// Four 8 x 8 matrices of bf16; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// c [16, 8] += a [16, 16] b [8, 16]^T, sums in f32.
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Adds 1 behind everything that this warp wrote; whoever reads the last count sees what all others wrote before theirs.
__device__ inline int count_behind(int* counter) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

}  // namespace foretoken

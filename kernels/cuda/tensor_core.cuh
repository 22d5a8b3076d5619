// The instructions behind products of small bf16 tiles: copies into shared memory that run on, matrices from there into registers,
// and their product. All but the prefetch are of architecture 80. This room must not know what the tiles are.
#pragma once
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
// 16 bytes to shared memory, not through L1; done when the group that they were committed with is.
__device__ inline void copy_async(unsigned to, const void* from, std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most N groups of this thread are under way.
template <int N> __device__ inline void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Asks for `bytes` bytes (a multiple of 16) to be in L2 soon. Nothing before architecture 90.
__device__ inline void prefetch_to_l2(const void* from, unsigned bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

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

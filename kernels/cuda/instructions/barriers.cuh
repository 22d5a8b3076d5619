// mbarriers in shared memory, which synchronize the threads of a block with the copy engine (TMA) of architecture 90,
// and the fence between them. This header must not know what is copied or multiplied.
//
// All rings of stages follow one protocol. The full barrier of a stage is initialized with the arrivals of its writers:
// one arrival that expects the copy engine's bytes, or one for each warp (with cp.async: each thread) that copies. The
// empty barrier is initialized with the number of warps that read the stage: each warp releases the stage by one
// arrival of its first lane (in a cluster one lane for each block), after all its lanes have read it: after
// __syncwarp(), or after the wait for the warpgroup products that read it. A ring that one warp both fills and reads
// needs no empty barrier: __syncwarp() is enough.
#pragma once
#include <cstdint>

#include "kernels/cuda/instructions/tensor_core.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Initializes a barrier, given by its address in shared memory or by pointer.
__device__ inline void init_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void init_barrier(std::uint64_t* barrier, int arrivals) {
  init_barrier(shared_address(barrier), arrivals);
}
__device__ inline void arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives when all cp.async copies that this thread has issued are complete; counts as one of the barrier's arrivals.
__device__ inline void arrive_behind_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Waits until the phase of this parity is complete.
__device__ inline void wait_barrier(unsigned barrier, int parity) {
  asm volatile(
      "{.reg .pred p;\n"
      "again%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again%=;}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ inline void wait_barrier(std::uint64_t* barrier, int parity) {
  wait_barrier(shared_address(barrier), parity);
}
// The same address of shared memory in another block of the cluster.
__device__ inline unsigned in_block(unsigned address, int rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// Writes numbers to such an address; the barrier of that block counts their bytes.
__device__ inline void send_to_block(unsigned address, unsigned barrier, float2 x) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(address),
               "f"(x.x), "f"(x.y), "r"(barrier)
               : "memory");
}
__device__ inline void send_to_block(unsigned address, unsigned barrier, float4 x) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
      "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
      : "memory");
}
// As wait_barrier, for bytes that other blocks of the cluster send to this one.
__device__ inline void wait_for_cluster(std::uint64_t* barrier, int parity) {
  asm volatile(
      "{.reg .pred p;\n"
      "again%=: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again%=;}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// The hardware barrier of a cluster, in two halves: arrives without ordering memory; waits until all threads arrived.
__device__ inline void arrive_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void wait_cluster() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// Both halves, ordering memory.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Arrives at the barrier of the same address in another block of the cluster.
__device__ inline void arrive_at(std::uint64_t* barrier, int block) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(in_block(shared_address(barrier), block))
               : "memory");
}
// Makes initialized barriers visible to the cluster and to the copy engine.
__device__ inline void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Arrives; the current phase of the barrier completes when `bytes` bytes have been copied.
__device__ inline void expect_copies(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void expect_copies(std::uint64_t* barrier, int bytes) {
  expect_copies(shared_address(barrier), bytes);
}
// Orders this thread's writes to shared memory (and its finished copies) before later accesses by the copy engine and
// by warpgroup products.
__device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#endif

}  // namespace foretoken

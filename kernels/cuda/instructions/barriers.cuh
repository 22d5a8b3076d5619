// Barriers in shared memory on which the threads of a block and the copy engine of architecture 90 meet, and the fence
// between them. This header must not know what is copied or multiplied.
//
// Rings of stages follow one rule. The full barrier of a stage is opened for who fills it: one arrival that expects the
// copy engine's bytes, or one for each warp (of cp.async: each thread) that copies. The empty barrier is opened for the
// warps that read the stage: each warp gives it back by one arrival of its first lane (in a cluster one lane for each
// block), behind what ends the reading of all its lanes: __syncwarp(), or the wait for the warpgroup products that read
// it. A ring that one warp fills and reads by itself needs no empty barrier: __syncwarp() stands between.
#pragma once
#include <cstdint>

#include "kernels/cuda/instructions/tensor_core.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// By address in shared memory, or where they lie.
__device__ inline void init_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void init_barrier(std::uint64_t* barrier, int arrivals) {
  init_barrier(shared_address(barrier), arrivals);
}
__device__ inline void arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// When all that this thread copied by cp.async so far is there; one of the arrivals that the barrier was opened for.
__device__ inline void arrive_behind_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Until the phase of this parity is complete.
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
// The same place of shared memory in another block of the cluster.
__device__ inline unsigned in_block(unsigned address, int rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// Numbers to such a place; the barrier there counts their bytes.
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
// As wait_barrier, for bytes that other blocks of the cluster hand to this one.
__device__ inline void wait_for_cluster(std::uint64_t* barrier, int parity) {
  asm volatile(
      "{.reg .pred p;\n"
      "again%=: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again%=;}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
__device__ inline void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// This phase of the barrier ends when `bytes` bytes have come.
__device__ inline void expect_copies(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void expect_copies(std::uint64_t* barrier, int bytes) {
  expect_copies(shared_address(barrier), bytes);
}
// What this thread wrote to shared memory (and its finished copies) stands before what the copy engine and warpgroup
// products do from now on.
__device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#endif

}  // namespace foretoken

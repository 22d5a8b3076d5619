// Boxes of a matrix, copied by the copy engine (TMA) of architecture 90: 128 bytes of some rows (64 inputs in bf16),
// swizzled so that eight rows of one column are in different banks. This header must not know what is
// multiplied.
#pragma once
#include <cuda.h>

#include "kernels/cuda/instructions/tensor_core.cuh"

namespace foretoken {

constexpr int kBoxBytes = 128;             // of a row
constexpr int kBoxInputs = kBoxBytes / 2;  // of bf16

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Copies the box of `map` at (k, row); `barrier` counts its bytes. Of a gated matrix: at (k, 0, 0, group), where a
// group is eight rows of each half, see gated_map().
__device__ inline void copy_box(unsigned to, const CUtensorMap& map, int k, int row, unsigned barrier,
                                std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(k), "r"(row), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ inline void copy_gated_box(unsigned to, const CUtensorMap& map, int k, int group, unsigned barrier,
                                      std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, "
      "%3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(k), "r"(0), "r"(group), "r"(barrier), "l"(policy)
      : "memory");
}
// Copies a box to the same address in both blocks of a cluster; the barrier at the same address in each counts its
// bytes.
__device__ inline void copy_box_to_both(unsigned to, const CUtensorMap& map, int k, int row, unsigned barrier,
                                        std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
      "[%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(to),
      "l"(&map), "r"(k), "r"(row), "r"(barrier), "h"(std::uint16_t(3)), "l"(policy)
      : "memory");
}
// Copies contiguous bytes; address, size and destination are multiples of 16.
__device__ inline void copy_bytes(unsigned to, const void* from, int bytes, unsigned barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// Prefetches the tensor map before the first copy.
__device__ inline void fetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

#else
__device__ inline void fetch_map(const CUtensorMap&) {}
#endif

}  // namespace foretoken

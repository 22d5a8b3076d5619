// Pages of keys or values as tensor maps for the copy engine (TMA) of architecture 90, which copies boxes of them to
// shared memory with the swizzle of swizzled<8>() for rows of 128 bytes, of swizzled<4>() for rows of 64. This header
// must not know attention.
#pragma once
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/instructions/barriers.cuh"
#include "kernels/cuda/instructions/tensor_maps.cuh"

namespace foretoken {

// Numbers of one plane of pages: [pages, kv_heads, page_rows, head_size] in bf16, in boxes of `rows` rows of 64
// numbers; or codes of 8 bits, in boxes of rows of a head, 64 or 128.
struct PagePlane {
  const std::byte* begin;
  std::int64_t pages, page_bytes;
  int kv_heads, page_rows, head_size, rows;
  bool codes = false;
};

// False: the driver cannot describe it.
inline bool describe(CUtensorMap& map, const PagePlane& p) {
  const auto encode = map_encoder();
  const cuuint64_t row = cuuint64_t(p.head_size) * (p.codes ? 1 : 2);
  const cuuint64_t sizes[4] = {cuuint64_t(p.head_size), cuuint64_t(p.page_rows), cuuint64_t(p.kv_heads),
                               cuuint64_t(p.pages)};
  const cuuint64_t strides[3] = {row, row * cuuint64_t(p.page_rows), cuuint64_t(p.page_bytes)};
  const cuuint32_t box[4] = {p.codes ? cuuint32_t(p.head_size) : 64, cuuint32_t(p.rows), 1, 1}, steps[4] = {1, 1, 1, 1};
  return encode != nullptr &&
         encode(&map, p.codes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
                const_cast<std::byte*>(p.begin), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                p.codes && p.head_size == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, int column, int row, int plane, int page,
                                std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(plane), "r"(page), "r"(shared_address(barrier))
      : "memory");
}

// The same with a policy for the L2 cache.
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, int column, int row, int plane, int page,
                                std::uint64_t* barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, "
      "%4, %5}], [%6], %7;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(plane), "r"(page), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

#endif

}  // namespace foretoken

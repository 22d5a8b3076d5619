// Instructions for attention, in addition to those of tensor_core.cuh: swizzled tiles of bf16 in shared memory, copies
// that can write zeros, and products that the compiler may reorder. From architecture 80 on. This header must not know
// attention.
#pragma once
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/instructions/tensor_core.cuh"

namespace foretoken {

// Byte offset of 16-byte vector `chunk` of row `row` in a tile with `kChunks` vectors a row: neighbouring rows are
// swizzled so that eight rows of one column are in different banks.
template <int kChunks> __device__ inline int swizzled(int row, int chunk) {
  static_assert(kChunks % 4 == 0);
  if constexpr (kChunks % 8 == 0)
    return (row * kChunks + (chunk ^ (row & 7))) * 16;
  else
    return (row * kChunks + (chunk ^ (row >> 1 & 3))) * 16;
}

// Copies 16 bytes to shared memory asynchronously (cp.async), zeros where `read` is false.
__device__ inline void copy_behind(std::uint32_t to, const void* from, bool read) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read ? 16 : 0));
}

// The same of 4 bytes.
__device__ inline void copy_word_behind(std::uint32_t to, const void* from, bool read) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(read ? 4 : 0));
}

// Commits this thread's copies as a group.
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending groups of this thread's copies are in flight.
template <int kPending> __device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8 x 8 tiles of 16-bit numbers; lane 8 i + j passes the address of row j of tile i. Lane l receives numbers 2 (l
// % 4) and the next of row l / 4.
struct Quad {
  std::uint32_t r[4];
};
__device__ inline Quad load_quad(std::uint32_t address) {
  Quad q;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.r[0]), "=r"(q.r[1]), "=r"(q.r[2]), "=r"(q.r[3])
               : "r"(address));
  return q;
}
// The same, each tile transposed.
__device__ inline Quad load_quad_transposed(std::uint32_t address) {
  Quad q;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.r[0]), "=r"(q.r[1]), "=r"(q.r[2]), "=r"(q.r[3])
               : "r"(address)
               : "memory");
  return q;
}

// An 8 x 8 tile of bf16, transposed: lane l held numbers 2 (l % 4) and the next of row l / 4.
__device__ inline std::uint32_t transposed(std::uint32_t tile) {
  std::uint32_t r;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(tile));
  return r;
}

// c [16, 8] += a [16, 16] b [16, 8]. Lane l holds of c rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next.
__device__ inline void multiply_add(float (&c)[4], const Quad& a, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}

__device__ inline std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

constexpr std::uint32_t kOnes = 0x3f803f80;  // two bf16

}  // namespace foretoken

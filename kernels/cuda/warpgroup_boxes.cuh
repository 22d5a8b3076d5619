// Warpgroup products whose factors both lie in shared memory, of as many rows of x as there may be. Empty but for architecture 90a.
// This room must not know how the factors came there.
#pragma once
#include "kernels/cuda/warpgroups.cuh"

namespace foretoken {

#ifdef FORETOKEN_WARPGROUPS

// d [64, n] = w x^T, or += where `add`; w [64, 16], x [n, 16] as tile_descriptor() says. Lane l of warp i holds of d rows 16 i + l / 4 and
// the eighth behind it, columns 8 j + 2 (l % 4) and the next: d[4 j], d[4 j + 1] of the first row, d[4 j + 2], d[4 j + 3] of the other.
__device__ inline void multiply_boxes(float (&d)[4], std::uint64_t w, std::uint64_t x, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %6, 0;\n wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3"
      "}, %4, %5, p, 1, 1, 0, 0;}"
      :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(w), "l"(x), "r"(int(add)));
}
__device__ inline void multiply_boxes(float (&d)[8], std::uint64_t w, std::uint64_t x, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %10, 0;\n wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7"
      "}, %8, %9, p, 1, 1, 0, 0;}"
      :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "l"(w), "l"(x), "r"(int(add)));
}
__device__ inline void multiply_boxes(float (&d)[16], std::uint64_t w, std::uint64_t x, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %18, 0;\n wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, %16, %17, p, 1, 1, 0, 0;}"
      :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), 
        "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(w), "l"(x), "r"(int(add)));
}

#endif

}  // namespace foretoken

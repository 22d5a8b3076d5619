// Warpgroup products with the first factor in registers, for 32 or 64 rows of x in shared memory. Empty except for
// architecture 90a. This header must not know how the factors are made.
#pragma once
#include "kernels/cuda/instructions/warpgroups.cuh"

namespace foretoken {

#ifdef FORETOKEN_WARPGROUPS

// d [64, n] = w x^T, or += where `add`: w [64, 16] in registers, four 8 x 8 matrices of each warp's 16 rows as of
// mma.m16n8k16; x [n, 16] as a descriptor of tile_descriptor(). d as of multiply_boxes().
__device__ inline void multiply_registers(float (&d)[16], const Quad& w, std::uint64_t x, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %21, 0;\n wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "r"(w.r[0]), "r"(w.r[1]), "r"(w.r[2]), "r"(w.r[3]), "l"(x), "r"(int(add)));
}
__device__ inline void multiply_registers(float (&d)[32], const Quad& w, std::uint64_t x, bool add) {
  multiply_scores(d, w, x, add);
}

#endif

}  // namespace foretoken

// Warpgroup products of boxes in shared memory: rows of 128 bytes, whatever the numbers: bf16, integers of 8 bits, or
// FP8 (e4m3). A step of a product reads 32 bytes of every row. Of bf16 the first
// factor may be in registers. Empty except for architecture 90a. This header must not
// know how boxes are loaded.
#pragma once
#include <type_traits>

#include "kernels/cuda/instructions/warpgroups.cuh"
#include "kernels/cuda/products/matrix_boxes.cuh"

namespace foretoken {

// The numbers of a box. Sum: what products are summed in; 32 bits.
struct Bf16Numbers {
  using Sum = float;
  static constexpr int kInputs = kBoxBytes / 2;  // of a box
};
struct Int8Numbers {
  using Sum = int;
  static constexpr int kInputs = kBoxBytes;
};
// Tensor cores align the terms of a sum of 32 products to 13 bits behind the greatest, so chains are kept short.
struct E4m3Numbers {
  using Sum = float;
  static constexpr int kInputs = kBoxBytes;
};

#ifdef FORETOKEN_WARPGROUPS

// The lists of 4 to 128 registers in the text of an instruction, and as its operands. `c`: "+f" or "+r".
#define FORETOKEN_NAMES_4 "%0, %1, %2, %3"
#define FORETOKEN_NAMES_8 FORETOKEN_NAMES_4 ", %4, %5, %6, %7"
#define FORETOKEN_NAMES_16 FORETOKEN_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FORETOKEN_NAMES_32 \
  FORETOKEN_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FORETOKEN_NAMES_48 \
  FORETOKEN_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define FORETOKEN_NAMES_64 \
  FORETOKEN_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FORETOKEN_NAMES_96                                                           \
  FORETOKEN_NAMES_64                                                                 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define FORETOKEN_NAMES_128                                                                      \
  FORETOKEN_NAMES_96                                                                             \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FORETOKEN_FOUR(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define FORETOKEN_SUMS_4(c) FORETOKEN_FOUR(c, 0)
#define FORETOKEN_SUMS_8(c) FORETOKEN_SUMS_4(c), FORETOKEN_FOUR(c, 4)
#define FORETOKEN_SUMS_16(c) FORETOKEN_SUMS_8(c), FORETOKEN_FOUR(c, 8), FORETOKEN_FOUR(c, 12)
#define FORETOKEN_SUMS_32(c) \
  FORETOKEN_SUMS_16(c), FORETOKEN_FOUR(c, 16), FORETOKEN_FOUR(c, 20), FORETOKEN_FOUR(c, 24), FORETOKEN_FOUR(c, 28)
#define FORETOKEN_SUMS_48(c) \
  FORETOKEN_SUMS_32(c), FORETOKEN_FOUR(c, 32), FORETOKEN_FOUR(c, 36), FORETOKEN_FOUR(c, 40), FORETOKEN_FOUR(c, 44)
#define FORETOKEN_SUMS_64(c) \
  FORETOKEN_SUMS_48(c), FORETOKEN_FOUR(c, 48), FORETOKEN_FOUR(c, 52), FORETOKEN_FOUR(c, 56), FORETOKEN_FOUR(c, 60)
#define FORETOKEN_SUMS_96(c)                                                                                        \
  FORETOKEN_SUMS_64(c), FORETOKEN_FOUR(c, 64), FORETOKEN_FOUR(c, 68), FORETOKEN_FOUR(c, 72), FORETOKEN_FOUR(c, 76), \
      FORETOKEN_FOUR(c, 80), FORETOKEN_FOUR(c, 84), FORETOKEN_FOUR(c, 88), FORETOKEN_FOUR(c, 92)
#define FORETOKEN_SUMS_128(c)                                                                                          \
  FORETOKEN_SUMS_96(c), FORETOKEN_FOUR(c, 96), FORETOKEN_FOUR(c, 100), FORETOKEN_FOUR(c, 104), FORETOKEN_FOUR(c, 108), \
      FORETOKEN_FOUR(c, 112), FORETOKEN_FOUR(c, 116), FORETOKEN_FOUR(c, 120), FORETOKEN_FOUR(c, 124)

// n sums of a lane are 2 n rows of x. w, x, p: the numbers of the operands behind the sums; `end`: the instruction's
// last operands.
#define FORETOKEN_MULTIPLY(n, columns, kind, c, w_at, x_at, add_at, end)                                          \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #add_at ", 0;\n wgmma.mma_async.sync.aligned.m64n" #columns kind \
               " {" FORETOKEN_NAMES_##n "}, %" #w_at ", %" #x_at ", p" end ";}"                                   \
               : FORETOKEN_SUMS_##n(c)                                                                            \
               : "l"(w), "l"(x), "r"(int(add)))
#define FORETOKEN_MULTIPLY_AS(n, columns, w_at, x_at, add_at)                                                 \
  template <class N>                                                                                          \
  __device__ inline void multiply_boxes(typename N::Sum(&d)[n], std::uint64_t w, std::uint64_t x, bool add) { \
    if constexpr (std::is_same_v<N, Bf16Numbers>)                                                             \
      FORETOKEN_MULTIPLY(n, columns, "k16.f32.bf16.bf16", "+f", w_at, x_at, add_at, ", 1, 1, 0, 0");          \
    else if constexpr (std::is_same_v<N, E4m3Numbers>)                                                        \
      FORETOKEN_MULTIPLY(n, columns, "k32.f32.e4m3.e4m3", "+f", w_at, x_at, add_at, ", 1, 1");                \
    else                                                                                                      \
      FORETOKEN_MULTIPLY(n, columns, "k32.s32.s8.s8", "+r", w_at, x_at, add_at, "");                          \
  }

// multiply_boxes<N>(d, w, x, add): d [64, n] = w x^T, or += where `add`: 32 bytes of each row of w [64] and of x [n],
// as descriptors of tile_descriptor(). Lane l of warp i holds of d rows 16 i + l / 4 and the eighth after it, columns 8
// j + 2 (l % 4) and the next: d[4 j], d[4 j + 1] of the first row, d[4 j + 2], d[4 j + 3] of the other.
FORETOKEN_MULTIPLY_AS(4, 8, 4, 5, 6)
FORETOKEN_MULTIPLY_AS(8, 16, 8, 9, 10)
FORETOKEN_MULTIPLY_AS(16, 32, 16, 17, 18)
FORETOKEN_MULTIPLY_AS(32, 64, 32, 33, 34)
FORETOKEN_MULTIPLY_AS(48, 96, 48, 49, 50)
FORETOKEN_MULTIPLY_AS(64, 128, 64, 65, 66)
FORETOKEN_MULTIPLY_AS(96, 192, 96, 97, 98)
FORETOKEN_MULTIPLY_AS(128, 256, 128, 129, 130)

// The same with w [64, 16] in registers: four 8 x 8 matrices of each warp's 16 rows as of mma.m16n8k16.
#define FORETOKEN_MULTIPLY_REGISTERS(n, columns, w0, w1, w2, w3, x_at, add_at)                                    \
  __device__ inline void multiply_registers(float(&d)[n], const Quad& w, std::uint64_t x, bool add) {             \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #add_at ", 0;\n wgmma.mma_async.sync.aligned.m64n" #columns    \
                 "k16.f32.bf16.bf16 {" FORETOKEN_NAMES_##n "}, {%" #w0 ", %" #w1 ", %" #w2 ", %" #w3 "}, %" #x_at \
                                                           ", p, 1, 1, 0;}"                                       \
                 : FORETOKEN_SUMS_##n("+f")                                                                       \
                 : "r"(w.r[0]), "r"(w.r[1]), "r"(w.r[2]), "r"(w.r[3]), "l"(x), "r"(int(add)));                    \
  }
FORETOKEN_MULTIPLY_REGISTERS(16, 32, 16, 17, 18, 19, 20, 21)
FORETOKEN_MULTIPLY_REGISTERS(32, 64, 32, 33, 34, 35, 36, 37)
FORETOKEN_MULTIPLY_REGISTERS(48, 96, 48, 49, 50, 51, 52, 53)
FORETOKEN_MULTIPLY_REGISTERS(64, 128, 64, 65, 66, 67, 68, 69)
FORETOKEN_MULTIPLY_REGISTERS(96, 192, 96, 97, 98, 99, 100, 101)
FORETOKEN_MULTIPLY_REGISTERS(128, 256, 128, 129, 130, 131, 132, 133)

#undef FORETOKEN_MULTIPLY_REGISTERS
#undef FORETOKEN_MULTIPLY_AS
#undef FORETOKEN_MULTIPLY
#undef FORETOKEN_SUMS_128
#undef FORETOKEN_SUMS_96
#undef FORETOKEN_SUMS_64
#undef FORETOKEN_SUMS_48
#undef FORETOKEN_SUMS_32
#undef FORETOKEN_SUMS_16
#undef FORETOKEN_SUMS_8
#undef FORETOKEN_SUMS_4
#undef FORETOKEN_FOUR
#undef FORETOKEN_NAMES_128
#undef FORETOKEN_NAMES_96
#undef FORETOKEN_NAMES_64
#undef FORETOKEN_NAMES_48
#undef FORETOKEN_NAMES_32
#undef FORETOKEN_NAMES_16
#undef FORETOKEN_NAMES_8
#undef FORETOKEN_NAMES_4

#endif

}  // namespace foretoken

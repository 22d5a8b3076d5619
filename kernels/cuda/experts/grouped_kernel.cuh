// The kernel of a grouped product. A block has four warps and 64 outputs of one expert, 16 a warp, and takes 8, 16 or
// 64 of its pairs at a time. Pieces of the matrix and of x, some stages ahead, come to shared memory by cp.async, in
// the order of the inputs; mma.m16n8k16 adds them, k ascending in one chain that starts at zero. So a result depends
// neither on the other pairs nor on how many there are, and codes give the bits of their dense copy. Blocks of experts
// without pairs end at once: the grid has only as many as can be touched. This header must not know how experts are
// chosen.
#pragma once
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/experts/grouped.cuh"
#include "kernels/cuda/instructions/tensor_core.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

constexpr int kGroupedThreads = 128, kGroupedOuts = 64;  // of a block

// 16 bytes, or zeros.
__device__ inline void copy_sixteen(unsigned to, const void* from, bool there, std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0), "l"(policy)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `n` of the groups of copies that this thread committed are incomplete.
__device__ inline void wait_for_copies(int n) {
  switch (n) {
    case 0:
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      break;
    case 1:
      asm volatile("cp.async.wait_group 1;" ::: "memory");
      break;
    case 2:
      asm volatile("cp.async.wait_group 2;" ::: "memory");
      break;
    case 3:
      asm volatile("cp.async.wait_group 3;" ::: "memory");
      break;
    case 4:
      asm volatile("cp.async.wait_group 4;" ::: "memory");
      break;
    case 5:
      asm volatile("cp.async.wait_group 5;" ::: "memory");
      break;
    default:
      asm volatile("cp.async.wait_group 6;" ::: "memory");
  }
}

// Where the 16-byte piece `c` of a row of 128 bytes lies: eight rows of one column are in different banks.
__device__ inline unsigned swizzled(int row, int c) { return unsigned(row * 128 + ((c ^ row) % 8) * 16); }

// ---- pieces of a matrix ----
// A source has
//   kInputs          of a stage
//   bytes(a)         of the matrix in a stage
//   Source(a, expert, tile)
//   copy(to, step)   the thread's share of a stage
//   multiply(sum, sets, stage, x, warp, lane)   of the first sets of eight rows; x: their addresses, in boxes of 64
//                                               inputs

class DenseSource {
 public:
  static constexpr int kInputs = 64;
  static __host__ __device__ constexpr int bytes(const Grouped&) { return kGroupedOuts * kInputs * 2; }

  // A thread copies the piece `threadIdx.x % 8` of row threadIdx.x / 8 of each warp's 16.
  __device__ DenseSource(const Grouped& a, int expert, int tile)
      : w_(static_cast<const Bf16*>(a.matrices[expert])), in_(a.in), policy_(read_once()) {
    const int row = int(threadIdx.x) / 8, half = a.out / 2;
#pragma unroll
    for (int warp = 0; warp < 4; ++warp) {
      const int o = a.to.gated ? tile * 32 + warp * 8 + row % 8 : tile * kGroupedOuts + warp * 16 + row;
      rows_[warp] = o >= a.to.out ? -1 : a.to.gated && row >= 8 ? half + o : o;
    }
  }
  __device__ void copy(unsigned to, int step) const {
    const int row = int(threadIdx.x) / 8, c = int(threadIdx.x) % 8, k = step * kInputs + c * 8;
#pragma unroll
    for (int warp = 0; warp < 4; ++warp) {
      const bool there = rows_[warp] >= 0 && k < in_;
      copy_sixteen(to + swizzled(warp * 16 + row, c), w_ + (there ? std::int64_t(rows_[warp]) * in_ + k : 0), there,
                   policy_);
    }
  }
  template <int kSets>
  __device__ void multiply(float (&sum)[kSets][4], int sets, unsigned stage, unsigned x, int warp, int lane) const {
    constexpr int kSteps = kInputs / 16;
    unsigned w[kSteps][4];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) load_matrices(w[s], stage + swizzled(warp * 16 + lane % 16, s * 2 + lane / 16));
#pragma unroll
    for (int n = 0; n < kSets; ++n)
#pragma unroll
      for (int s = 0; s < kSteps && n < sets; s += 2) {
        unsigned b[4];
        load_matrices(b, x + swizzled(n * 8 + lane % 8, s * 2 + lane / 8));
        multiply_add(sum[n], w[s], b[0], b[1]);
        multiply_add(sum[n], w[s + 1], b[2], b[3]);
      }
  }

 private:
  const Bf16* w_;
  int in_, rows_[4];
  std::uint64_t policy_;
};

// U: an Unpack of codes.cuh. A stage: eight cells of packed_matrix.cuh, two a warp.
template <class U> class CodedSource {
 public:
  static constexpr int kInputs = kCellInputs;
  static __host__ __device__ int bytes(const Grouped& a) { return 8 * a.layout.cell; }

  __device__ CodedSource(const Grouped& a, int expert, int tile)
      : a_(a),
        numbers_(GlobalBytes{a.layout.numbers}),
        cells_(static_cast<const unsigned char*>(a.matrices[expert])),
        tile_(tile),
        policy_(read_once()) {}
  // Cells 2 w and 2 w + 1 are of warp w: neighbours, or, gated, one of each half of the outputs.
  __device__ void copy(unsigned to, int step) const {
    const int cell = a_.layout.cell, parts = cell / 16, all = a_.layout.eights, half = all / 2;
    for (int i = int(threadIdx.x); i < 8 * parts; i += kGroupedThreads) {
      const int n = i / parts, of_half = tile_ * 4 + n / 2;
      const int eight = a_.to.gated ? (n % 2) * half + of_half : tile_ * 8 + n;
      const bool there = a_.to.gated ? of_half < half : eight < all;
      copy_sixteen(to + unsigned(16 * i), cells_ + (there ? a_.layout.at(step, eight) + i % parts * 16 : 0), there,
                   policy_);
    }
  }
  template <int kSets>
  __device__ void multiply(float (&sum)[kSets][4], int sets, unsigned stage, unsigned x, int warp, int lane) const {
    constexpr int kWords = bits_of(U::kCode), kWordInputs = kCellInputs / kWords, kBox = kSets * 8 * 128;
    const unsigned cell = unsigned(a_.layout.cell), cells = stage + 2u * unsigned(warp) * cell,
                   scales = cells + unsigned(code_bytes(U::kCode) + lane / 4 * bytes_of(U::kForm));
    unsigned words[2][4], b[kSets][4];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      Pair pairs[2][U::kPairs];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (w % 4 == 0) load_words(words[i], cells + unsigned(i) * cell + unsigned(w / 4 * 512 + lane * 16));
        const unsigned group = unsigned((w * kWordInputs >> a_.layout.group_log) * kCellOutputs * bytes_of(U::kForm));
        U::word(pairs[i], words[i][w % 4], Scale<U::kForm>(SharedBytes{scales + unsigned(i) * cell + group}), numbers_);
      }
#pragma unroll
      for (int s = 0; s < kWordInputs / 16; ++s) {
        const int step = w * (kWordInputs / 16) + s, box = step / 4;
        const unsigned a[4] = {pairs[0][2 * s], pairs[1][2 * s], pairs[0][2 * s + 1], pairs[1][2 * s + 1]};
#pragma unroll
        for (int n = 0; n < kSets; ++n) {
          if (n >= sets) break;
          if (step % 2 == 0)
            load_matrices(b[n], x + unsigned(box * kBox) + swizzled(n * 8 + lane % 8, step % 4 * 2 + lane / 8));
          multiply_add(sum[n], a, b[n][step % 2 * 2], b[n][step % 2 * 2 + 1]);
        }
      }
    }
  }

 private:
  __device__ static void load_words(unsigned (&w)[4], unsigned at) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(at)
                 : "memory");
  }

  const Grouped& a_;
  LaneNumbers<U::kCode> numbers_;
  const unsigned char* cells_;
  int tile_;
  std::uint64_t policy_;
};

// ---- rows of x ----

// The rows of up to 8 kSets pairs of an expert, kInputs at a time: boxes of 64 inputs, swizzled, one behind the other.
template <int kSets, int kInputs> class GroupedRows {
 public:
  static constexpr int kRows = 8 * kSets, kBytes = kRows * kInputs * 2;

  // Pairs first to first + n of a.pairs.
  __device__ GroupedRows(const Grouped& a, int first, int n)
      : x_(static_cast<const Bf16*>(a.x)), in_(a.in), rows_of_sets_((n + 7) / 8 * 8), policy_(read_often()) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int row = row_of(i);
      rows_[i] = row < n && row < kRows ? x_ + __ldcg(a.pairs + first + row) / a.each * a.x_stride : nullptr;
    }
  }
  __device__ void copy(unsigned to, int step) const {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int row = row_of(i), c = int(threadIdx.x) % kPieces, k = step * kInputs + c * 8;
      if (row >= rows_of_sets_) break;
      const bool there = rows_[i] != nullptr && k < in_;
      copy_sixteen(to + unsigned(c / 8 * kRows * 128) + swizzled(row, c % 8), there ? rows_[i] + k : x_, there,
                   policy_);
    }
  }

 private:
  static constexpr int kPieces = kInputs / 8, kApart = kGroupedThreads / kPieces,
                       kCopies = (kRows + kApart - 1) / kApart;  // of a row, rows at once, rows of a thread
  __device__ static int row_of(int i) { return int(threadIdx.x) / kPieces + i * kApart; }

  const Bf16 *x_, *rows_[kCopies];  // null: none
  int in_, rows_of_sets_;           // with zeros behind the last pair; what lies behind is not multiplied
  std::uint64_t policy_;
};

// ---- the kernel ----

template <int kSets, bool kGated> __device__ void write_pairs(const Grouped& a, const float (&sum)[kSets][4], int first,
                                                              int n, int tile, int warp, int lane) {
#pragma unroll
  for (int set = 0; set < kSets; ++set)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = set * 8 + lane % 4 * 2 + j;
      if (row >= n) continue;
      const int pair = __ldcg(a.pairs + first + row);
      if constexpr (kGated) {
        const int o = tile * 32 + warp * 8 + lane / 4;
        if (o < a.to.out) a.to.write_gated(pair, o, sum[set][j], sum[set][j + 2]);
      } else {
        const int o = tile * kGroupedOuts + warp * 16 + lane / 4;
        if (o < a.to.out) a.to.write(pair, o, sum[set][j], 0);
        if (o + 8 < a.to.out) a.to.write(pair, o + 8, sum[set][j + 2], 0);
      }
    }
}

// Block (t, e, z): outputs of tile t, the e-th touched expert, its pairs 8 kSets z on and so on.
template <int kSets, class Source> __global__ void __launch_bounds__(kGroupedThreads)
    grouped_kernel(const __grid_constant__ Grouped a) {
  extern __shared__ __align__(128) unsigned char shared[];
  static_assert(kGroupedOuts == 64);
  using Rows = GroupedRows<kSets, Source::kInputs>;
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int expert = __ldcg(a.touched + blockIdx.y);
  if (expert < 0) return;
  const int begin = __ldcg(a.offsets + expert), end = __ldcg(a.offsets + expert + 1);
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, tile = int(blockIdx.x);
  const int steps = (a.in + Source::kInputs - 1) / Source::kInputs, of_matrix = Source::bytes(a),
            stage_bytes = of_matrix + Rows::kBytes;
  const Source source(a, expert, tile);
  const auto stage_at = [&](int step) { return shared_address(shared) + unsigned(step % a.stages * stage_bytes); };
  for (int first = begin + int(blockIdx.z) * Rows::kRows; first < end; first += int(gridDim.z) * Rows::kRows) {
    const int n = min(end - first, Rows::kRows);
    const Rows rows(a, first, n);
    const auto request = [&](int step) {
      if (step < steps) source.copy(stage_at(step), step), rows.copy(stage_at(step) + unsigned(of_matrix), step);
      commit_copies();  // an empty group where no piece remains, so that waiting counts them alike
    };
    for (int step = 0; step < a.stages - 1; ++step) request(step);
    float sum[kSets][4] = {};
    for (int step = 0; step < steps; ++step) {
      wait_for_copies(a.stages - 2);
      __syncthreads();  // the copies of all threads are there, and all have read the stage before
      request(step + a.stages - 1);
      source.template multiply<kSets>(sum, (n + 7) / 8, stage_at(step), stage_at(step) + unsigned(of_matrix), warp,
                                      lane);
    }
    if (a.to.gated)
      write_pairs<kSets, true>(a, sum, first, n, tile, warp, lane);
    else
      write_pairs<kSets, false>(a, sum, first, n, tile, warp, lane);
    wait_for_copies(0);
    __syncthreads();  // the stages are filled anew
  }
}

template <class Source> auto grouped_kernel_of(int sets) {
  return sets == 1 ? grouped_kernel<1, Source> : sets == 2 ? grouped_kernel<2, Source> : grouped_kernel<8, Source>;
}

}  // namespace foretoken

// The ring of packed cells and of x in shared memory, and the products of both: codes become the first operand of
// warpgroup products in registers, 32 inputs at a time, while the products of the 32 before run. For coded_tile.cu.
// This header must not know how the sums are used.
#pragma once
#include "kernels/cuda/products/packed_matrix.cuh"
#include "kernels/cuda/products/tile_kernel.cuh"
#include "kernels/cuda/products/tile_output.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

// A block: warpgroups with 64 outputs each (some of the last one's may be unused), kRows rows of x, and a warpgroup of
// which one warp requests copies and which gives registers to the others. A stage holds 128 inputs: two boxes of x,
// then the cells of the outputs.
template <int kRowsOf, int kOutsOf> struct CodedTile {
  using Numbers = Bf16Numbers;
  using Sum = float;
  static constexpr int kRows = kRowsOf, kOuts = kOutsOf, kWorkers = 4 * ((kOuts + 63) / 64),
                       kThreads = 32 * (kWorkers + 4), kWriters = 32 * kWorkers, kCells = kOuts / kCellOutputs,
                       kPitch = kOuts + 4;
  static constexpr int kBox = kRows * kBoxInputs * 2, kRowBytes = kCellInputs / kBoxInputs * kBox;
  static constexpr CodedTileSize kSize{kRows, kOuts};
  static constexpr int kStages = CodedTileSize::kFewestStages, kBytes = int(kSize.stage(512));  // at least, for Shares
  // Registers are given to the workers out of those of the launch, which are as many as fit, in eights for each thread.
  static constexpr int kRegisters = kWorkers == 16 ? 104 : 152, kSpared = kWorkers == 16 ? 64 : 56;
  static_assert(32 * kWorkers * kRegisters + 128 * kSpared <= 65536 / kThreads / 8 * 8 * kThreads);
  static_assert(kStages * kBytes >= kRows * kPitch * 4);
  static_assert(kOuts % 16 == 0 && kRowBytes == kSize.row_bytes() && has(kCodedTiles, kSize));
};

struct CodedWork {
  CUtensorMap x;
  Epilogue to;
  int slices, tiles;
  const unsigned char* cells;
  PackedLayout layout;
  int stages, stage;  // of the ring; bytes of each
  int pieces;         // of 128 inputs, of a slice
};

#ifdef FORETOKEN_WARPGROUPS

template <class T> class CodedRing {
 public:
  // Called by all threads of a block.
  __device__ CodedRing(const CodedWork& a, unsigned char* shared, std::uint64_t* barriers)
      : a_(a), memory_((shared_address(shared) + 1023u) & ~1023u), barriers_(barriers) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < a.stages; ++i) init_barrier(full(i), 1), init_barrier(empty(i), T::kWorkers);
      fence_barriers();
    }
    __syncthreads();
  }
  __device__ std::uint64_t* full(int stage) const { return barriers_ + stage; }
  __device__ std::uint64_t* empty(int stage) const { return barriers_ + CodedTileSize::kMostStages + stage; }
  __device__ unsigned memory() const { return memory_; }
  __device__ unsigned rows_at(int stage) const { return memory_ + unsigned(stage * a_.stage); }
  __device__ unsigned cells_at(int stage) const { return rows_at(stage) + unsigned(T::kRowBytes); }

  // A warp requests the pieces from `first` on of tiles tile, tile + stride, ...: cells that fit the ring, then, when
  // the previous kernels have ended, x. Of a gated tile, cells of the first half of the outputs come before the others.
  __device__ void request(int tile, int stride, int first) const {
    const int early = min(a_.stages, a_.pieces);
    for (int i = 0; i < early; ++i) cells(tile, first + i, i);
    wait_for_previous_kernels();
    for (int i = 0; i < early; ++i) rows(first + i, i);
    int stage = early % a_.stages, round = early / a_.stages;
    for (int i = early; tile < a_.tiles; tile += stride, i = 0)
      for (; i < a_.pieces; ++i) {
        if (round > 0) wait_barrier(empty(stage), (round - 1) & 1);
        cells(tile, first + i, stage), rows(first + i, stage);
        if (++stage == a_.stages) stage = 0, ++round;
      }
  }

 private:
  __device__ void cells(int tile, int piece, int stage) const {
    if (threadIdx.x % 32 != 0) return;
    const int cell = a_.layout.cell, halves = a_.to.gated ? 2 : 1, count = T::kCells / halves,
              most = a_.layout.eights / halves, first = tile * count, bytes = min(count, most - first) * cell;
    expect_copies(full(stage), T::kRowBytes + halves * bytes);
    for (int half = 0; half < halves; ++half)
      copy_bytes(cells_at(stage) + unsigned(half * count * cell), a_.cells + a_.layout.at(piece, half * most + first),
                 bytes, shared_address(full(stage)), read_once());
  }
  __device__ void rows(int piece, int stage) const {
    if (threadIdx.x % 32 != 0) return;
    for (int i = 0; i < kCellInputs / kBoxInputs; ++i)
      copy_box(rows_at(stage) + unsigned(i * T::kBox), a_.x, piece * kCellInputs + i * kBoxInputs, 0,
               shared_address(full(stage)), read_often());
  }

  const CodedWork& a_;
  unsigned memory_;
  std::uint64_t* barriers_;
};

// tile_descriptor() of rows of x, of which only the lower half depends on the address: one instruction to move it.
class XDescriptor {
 public:
  __device__ explicit XDescriptor(unsigned address) : low_(unsigned(tile_descriptor(address, 16))) {}
  __device__ XDescriptor moved(int bytes) const {
    XDescriptor to = *this;
    to.low_ += unsigned(bytes >> 4);
    return to;
  }
  __device__ std::uint64_t all() const {
    std::uint64_t d;
    asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(low_), "n"((1024 >> 4) | 1 << 30));
    return d;
  }

 private:
  unsigned low_;
};

// Codes and scales of a warp's 16 outputs of a stage, of which 32 inputs at a time become the operands of two products.
// kOneGroup: all inputs of a cell share a scale.
template <class U, bool kOneGroup> class Operands {
 public:
  static constexpr int kSteps = 2, kInputs = 16 * kSteps, kParts = kCellInputs / kInputs;
  // first, second: of the cells of a stage, those of this warp.
  __device__ Operands(const PackedLayout& layout, unsigned numbers, int first, int second, int lane)
      : group_log_(layout.group_log),
        numbers_(SharedBytes{numbers}),
        codes_{unsigned(first * layout.cell + lane * 16), unsigned(second * layout.cell + lane * 16)},
        scales_at_(unsigned(code_bytes(U::kCode) + lane / 4 * bytes_of(U::kForm) - lane * 16)) {}

  // Loads the codes of 64 or 128 inputs, as many as a lane's 16 bytes are, where `part` is the first of them.
  __device__ void load(unsigned cells, int part) {
    if (part % (kWords / kPartWords) != 0) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned at = cells + codes_[i];
      load_words(words_[i], at + unsigned(part * kPartWords / kWords * 512));
      if (kOneGroup && part == 0) scales_[i] = Scale<U::kForm>(SharedBytes{at + scales_at_});
    }
    cells_ = cells;
  }
  __device__ void unpack(Quad (&to)[kSteps], int part) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int w = 0; w < kPartWords; ++w) {
        if (!kOneGroup) scales_[i] = scale(i, part * kInputs + w * kInputs / kPartWords);
        Pair pairs[U::kPairs];
        U::word(pairs, words_[i][(part * kPartWords + w) % kWords], scales_[i], numbers_);
#pragma unroll
        for (int p = 0; p < U::kPairs; ++p) to[(w * U::kPairs + p) / 2].r[p % 2 * 2 + i] = pairs[p];
      }
  }

 private:
  static constexpr int kWords = 4, kPartWords = bits_of(U::kCode) / 4;  // of a lane's 16 bytes; of a part
  __device__ Scale<U::kForm> scale(int i, int input) const {
    const int at = (input >> group_log_) * kCellOutputs * bytes_of(U::kForm);
    return Scale<U::kForm>(SharedBytes{cells_ + codes_[i] + scales_at_ + unsigned(at)});
  }
  __device__ static void load_words(unsigned (&w)[kWords], unsigned at) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(at)
                 : "memory");
  }

  int group_log_;
  LaneNumbers<U::kCode> numbers_;
  unsigned codes_[2], scales_at_, cells_ = 0, words_[2][kWords] = {};
  Scale<U::kForm> scales_[2] = {};
};

// The compiler must not move reads and writes of these registers across this line.
template <int n> __device__ inline void hold(Quad (&w)[n]) {
#pragma unroll
  for (Quad& q : w)
#pragma unroll
    for (std::uint32_t& r : q.r) asm volatile("" : "+r"(r)::"memory");
}

// sum (+)= the product of the next part of the operands, which are unpacked to `w`, and of x.
template <class Parts, int n> __device__ inline void multiply_part(float (&sum)[n], Parts& operands,
                                                                   Quad (&w)[Parts::kSteps], int part, XDescriptor x,
                                                                   bool add) {
  hold(w);
  operands.unpack(w, part);
  hold(w);
  pin(sum);
  begin_products();
#pragma unroll
  for (int k = 0; k < Parts::kSteps; ++k) multiply_registers(sum, w[k], x.moved(32 * k).all(), add || k > 0);
  end_products();
  pin(sum);
}

// The reader's side of the ring, in a warpgroup. Lane l of warp w holds outputs 16 w + l / 4 and the eighth after it,
// rows 8 n + 2 (l % 4) and the next.
template <class T, class U> class CodedSums {
 public:
  __device__ CodedSums(const CodedWork& a, const CodedRing<T>& ring, unsigned numbers, int warp, int lane)
      : a_(a), ring_(ring), numbers_(numbers), warp_(warp), lane_(lane) {
    // The last warps of a tile may have no outputs: they compute those of the first, which are not used.
    const int cells = warp < T::kOuts / 16 ? warp : 0;
    first_ = a.to.gated ? cells : 2 * cells, second_ = a.to.gated ? T::kCells / 2 + cells : 2 * cells + 1;
  }

  // sum = the product of the next pieces of a slice.
  __device__ void add_up(float (&sum)[T::kRows / 2]) {
    if (1 << a_.layout.group_log == kCellInputs)
      add_groups<true>(sum);
    else
      add_groups<false>(sum);
  }

 private:
  template <bool kOneGroup> __device__ void add_groups(float (&sum)[T::kRows / 2]) {
    using Parts = Operands<U, kOneGroup>;
    Parts operands(a_.layout, numbers_, first_, second_, lane_);
    Quad even[Parts::kSteps] = {}, odd[Parts::kSteps] = {};
    unsigned before = 0;
    for (int i = 0; i < a_.pieces; ++i) {
      wait_barrier(ring_.full(stage_), round_ & 1);
#pragma unroll
      for (int part = 0; part < Parts::kParts; ++part) {
        constexpr int kBoxParts = kBoxInputs / Parts::kInputs;
        const XDescriptor x = XDescriptor(ring_.rows_at(stage_))
                                  .moved(part / kBoxParts * T::kBox + part % kBoxParts * 2 * Parts::kInputs);
        operands.load(ring_.cells_at(stage_), part);
        wait_products<1>();  // those that read these registers
        multiply_part(sum, operands, part % 2 == 0 ? even : odd, part, x, i + part > 0);
        // All products but the last two groups are complete: none reads the stage before.
        if (part == 1 && i > 0 && lane_ == 0) arrive(ring_.empty(before));
      }
      before = stage_;
      if (++stage_ == a_.stages) stage_ = 0, ++round_;
    }
    wait_products<0>();
    pin(sum);
    if (lane_ == 0) arrive(ring_.empty(before));
  }

  const CodedWork& a_;
  const CodedRing<T>& ring_;
  unsigned numbers_;
  int warp_, lane_, first_, second_, stage_ = 0, round_ = 0;
};

#endif

}  // namespace foretoken

// The rings of packed cells and of boxes of x in shared memory for products of many rows, and the products of both: for
// coded_wide.cu. Two blocks of a cluster have other outputs of the same rows: each requests half of a box of x for
// both, and its own cells. This header must not know how the sums are used.
#pragma once
#include "kernels/cuda/products/coded_ring.cuh"
#include "kernels/cuda/products/wide_kernel.cuh"

namespace foretoken {

// A block: two warpgroups with 64 outputs each, kRows rows of x, and a warpgroup of which one warp requests cells and
// one x, and which gives registers to the others.
template <int kRowsOf> struct CodedWideTile {
  using Numbers = Bf16Numbers;
  using Sum = float;
  static constexpr int kRows = kRowsOf, kPeers = kWidePeers, kStaged = kStagedRows, kGroups = 2, kOuts = 64 * kGroups,
                       kWorkers = 4 * kGroups, kThreads = 32 * (kWorkers + 4), kCells = kOuts / kCellOutputs;
  static constexpr int kBox = kRows * kBoxBytes, kShare = kBox / kPeers;
  static constexpr CodedWideSize kSize{kRows};
  static_assert(kOuts == CodedWideSize::kOuts && kStaged == CodedWideSize::kStaged && has(kCodedWides, kSize));
};

struct CodedWideWork {
  CUtensorMap x;
  Epilogue to;
  const unsigned char* cells;
  PackedLayout layout;
  // Slices that a block adds one after another, and slices that are computed apart: one of both is 1.
  int runs, parts;
  int pieces;                   // of 128 inputs, of a slice
  int box_stages, cell_stages;  // of the rings
  bool once;                    // the matrix is read once
  float4* partials = nullptr;   // [64 outputs of tiles of rows, parts, kRows / 8, 128 threads]
  int* counters = nullptr;      // [64 outputs of tiles of rows], zero between launches

  __host__ __device__ int items(const WideOrder& order) const { return order.count() * parts; }
};

#ifdef FORETOKEN_WARPGROUPS

// The stages of a ring, of `bytes` bytes each, and the barriers of each.
struct StageRing {
  unsigned memory;
  std::uint64_t* barriers;
  int stages, bytes;

  __device__ std::uint64_t* full(int stage) const { return barriers + stage; }
  __device__ std::uint64_t* empty(int stage) const { return barriers + stages + stage; }
  __device__ unsigned at(int stage) const { return memory + unsigned(stage * bytes); }
  __device__ void begin(int arrivals) const {
    for (int i = 0; i < stages; ++i) init_barrier(full(i), 1), init_barrier(empty(i), arrivals);
  }
};

// The next stage of a ring, and the parity of its round.
struct StagePlace {
  int stage = 0, parity = 0;
  __device__ void advance(const StageRing& ring) {
    if (++stage == ring.stages) stage = 0, parity ^= 1;
  }
};

template <class T> class CodedWideRing {
 public:
  // Called by all threads of a block.
  __device__ CodedWideRing(const CodedWideWork& a, unsigned char* shared, std::uint64_t* barriers) : a_(a) {
    const unsigned memory = (shared_address(shared) + 1023u) & ~1023u;
    boxes_ = {memory, barriers, a.box_stages, T::kBox};
    cells_ = {memory + unsigned(a.box_stages * T::kBox), barriers + 2 * a.box_stages, a.cell_stages,
              T::kCells * a.layout.cell};
    if (threadIdx.x == 0) {
      boxes_.begin(T::kPeers * T::kWorkers), cells_.begin(T::kWorkers);
      fence_barriers();
    }
    sync_cluster();
  }
  __device__ const StageRing& boxes() const { return boxes_; }
  __device__ const StageRing& cells() const { return cells_; }
  // Behind both rings.
  __device__ unsigned end() const { return cells_.at(cells_.stages); }

  // One lane requests the cells of items first, first + stride, ... Of a gated tile, cells of the first half of the
  // outputs come before the others. Of a tile behind the last output there are none.
  __device__ void request_cells(const WideOrder& order, int first, int stride) const {
    const std::uint64_t policy = a_.once ? read_once() : read_sometimes();
    const int cell = a_.layout.cell, halves = a_.to.gated ? 2 : 1, count = T::kCells / halves,
              most = a_.layout.eights / halves, pieces = a_.runs * a_.pieces;
    StagePlace to;
    for (int i = first; i < a_.items(order); i += stride) {
      const int eight = order(i / a_.parts).tile * count, bytes = max(0, min(count, most - eight)) * cell,
                piece = i % a_.parts * pieces;
#pragma unroll 1
      for (int n = 0; n < pieces; ++n, to.advance(cells_)) {
        wait_barrier(cells_.empty(to.stage), to.parity ^ 1);
        expect_copies(cells_.full(to.stage), halves * bytes);
        for (int half = 0; half < halves && bytes > 0; ++half)
          copy_bytes(cells_.at(to.stage) + unsigned(half * count * cell),
                     a_.cells + a_.layout.at(piece + n, half * most + eight), bytes,
                     shared_address(cells_.full(to.stage)), policy);
      }
    }
  }
  // One lane requests this block's share of the boxes of x of the same items, for both blocks.
  __device__ void request_rows(const WideOrder& order, int first, int stride) const {
    const int boxes = a_.runs * a_.pieces * (kCellInputs / kBoxInputs);
    StagePlace to;
    wait_for_previous_kernels();
    for (int i = first; i < a_.items(order); i += stride) {
      const int row = order(i / a_.parts).row + order.rank * (T::kRows / T::kPeers), box = i % a_.parts * boxes;
#pragma unroll 1
      for (int n = 0; n < boxes; ++n, to.advance(boxes_)) {
        wait_barrier(boxes_.empty(to.stage), to.parity ^ 1);
        expect_copies(boxes_.full(to.stage), T::kBox);
        copy_box_to_both(boxes_.at(to.stage) + unsigned(order.rank * T::kShare), a_.x, (box + n) * kBoxInputs, row,
                         shared_address(boxes_.full(to.stage)), read_often());
      }
    }
  }

 private:
  const CodedWideWork& a_;
  StageRing boxes_, cells_;
};

// The reader's side of the rings, in a warpgroup: 64 outputs times all rows. Lanes hold sums as BoxSums gives them.
template <class T, class U> class CodedWideSums {
 public:
  __device__ CodedWideSums(const CodedWideWork& a, const CodedWideRing<T>& ring, unsigned numbers, int warp, int lane)
      : a_(a), ring_(ring), numbers_(numbers), lane_(lane) {
    first_ = a.to.gated ? warp : 2 * warp, second_ = a.to.gated ? T::kCells / 2 + warp : 2 * warp + 1;
  }

  // sum = the product of the next slice, inputs ascending in one chain.
  __device__ void add_up(float (&sum)[T::kRows / 2]) {
    if (1 << a_.layout.group_log == kCellInputs)
      add_groups<true>(sum);
    else
      add_groups<false>(sum);
  }

 private:
  template <bool kOneGroup> __device__ void add_groups(float (&sum)[T::kRows / 2]) {
    using Parts = Operands<U, kOneGroup>;
    constexpr int kBoxParts = kBoxInputs / Parts::kInputs;
    static_assert(kBoxParts == 2);
    Parts operands(a_.layout, numbers_, first_, second_, lane_);
    Quad even[Parts::kSteps] = {}, odd[Parts::kSteps] = {};
    const auto release = [&](int stage) {
      if (lane_ < T::kPeers) arrive_at(ring_.boxes().empty(stage), lane_);
    };
    int before = -1;  // the stage of the box before
#pragma unroll 1
    for (int i = 0; i < a_.pieces; ++i) {
      wait_barrier(ring_.cells().full(cells_.stage), cells_.parity);
#pragma unroll
      for (int part = 0; part < Parts::kParts; ++part) {
        if (part % kBoxParts == 0) wait_barrier(ring_.boxes().full(boxes_.stage), boxes_.parity);
        operands.load(ring_.cells().at(cells_.stage), part);
        wait_products<1>();  // those that read these registers
        // All products but those of the part before are complete: of a box's second part, none reads the box before.
        if (part % kBoxParts == 1 && before >= 0) release(before);
        multiply_part(sum, operands, part % 2 == 0 ? even : odd, part,
                      XDescriptor(ring_.boxes().at(boxes_.stage)).moved(part % kBoxParts * 2 * Parts::kInputs),
                      i + part > 0);
        if (part % kBoxParts == 1) before = boxes_.stage, boxes_.advance(ring_.boxes());
      }
      __syncwarp();  // all lanes have unpacked the cells
      if (lane_ == 0) arrive(ring_.cells().empty(cells_.stage));
      cells_.advance(ring_.cells());
    }
    wait_products<0>();
    pin(sum);
    release(before);
  }

  const CodedWideWork& a_;
  const CodedWideRing<T>& ring_;
  unsigned numbers_;
  int lane_, first_, second_;
  StagePlace boxes_, cells_;
};

#endif

}  // namespace foretoken

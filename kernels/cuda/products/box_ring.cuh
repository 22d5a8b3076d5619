// The ring of boxes of a matrix and of x in shared memory, and their warpgroup products: for the kernels of
// tile_kernel.cuh and wide_kernel.cuh, whatever the numbers. One lane requests boxes by TMA, several ahead; the other
// warps multiply them. This header must not know how the sums are used.
#pragma once
#include <cuda.h>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/products/box_products.cuh"
#include "kernels/cuda/products/matrix_boxes.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

// A block's tile: warpgroups with 64 outputs each (some of the last one's may be unused), kRows rows of x, and a warp
// that requests boxes; kBlocks blocks on a multiprocessor. kPeers: blocks of a cluster with other outputs of the same
// rows, which share boxes of x by multicast; with peers, the requesting warp is in a warpgroup of its own, so that
// registers can be given to the others. kStaged: see ProductTile.
template <class N, int kRowsOf, int kOutsOf = 128, int kBlocksOf = 2, int kPeersOf = 1, int kStagedOf = 0>
struct BoxTile {
  using Numbers = N;
  using Sum = typename N::Sum;
  static constexpr int kRows = kRowsOf, kOuts = kOutsOf, kBlocks = kBlocksOf, kPeers = kPeersOf, kStaged = kStagedOf,
                       kGroups = (kOuts + 63) / 64, kWorkers = 4 * kGroups,
                       kThreads = 32 * (kWorkers + (kPeers > 1 ? 4 : 1)), kWriters = kThreads;
  static constexpr int kMatrixBytes = kOuts * kBoxBytes, kShareBytes = kRows / kPeers * kBoxBytes,
                       kBytes = kMatrixBytes + kRows * kBoxBytes;
  static constexpr ProductTile kSize{kRows, kOuts, kBlocks, kStaged};
  static constexpr int kStages = kSize.stages(), kShared = int(kSize.bytes()), kBarriers = int(kSize.barriers()) / 8;
  static constexpr int kPitch = kOuts + 4;  // of sums in shared memory, so that one write of a warp covers 32 banks
  static_assert(kOuts % 16 == 0 && kBytes == kSize.stage());
  static_assert(kStaged > 0 || kStages * kBytes >= kRows * kPitch * 4);
  static_assert(has(kProductTiles, kSize) && kSize.fits(kLargestSharedMemory));
};

// What a block requests: of tiles first, first + stride, ... below `end`, boxes k0 to k0 + boxes.
struct Boxes {
  int first, stride, end, k0, boxes;
  bool gated = false;  // tiles of the map that gated_map() makes
};

// The tile of the outputs, and the first row of x.
struct TilePlace {
  int tile, row;
};
struct TilesOfFewRows {
  __host__ __device__ TilePlace operator()(int i) const { return {i, 0}; }
};

#ifdef FORETOKEN_WARPGROUPS

template <class T> struct BoxRing {
  unsigned memory;
  std::uint64_t* barriers;  // kStages full barriers, kStages empty ones, and that of the leading warpgroup

  // Called by all threads of a block.
  __device__ BoxRing(unsigned char* shared, std::uint64_t* barriers)
      : memory((shared_address(shared) + 1023u) & ~1023u), barriers(barriers) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < T::kStages; ++i) init_barrier(full(i), 1), init_barrier(empty(i), T::kPeers * T::kWorkers);
      if constexpr (T::kStaged > 0) init_barrier(lead(), 4);
      fence_barriers();
    }
    if constexpr (T::kPeers > 1)
      sync_cluster();
    else
      __syncthreads();
  }
  __device__ std::uint64_t* full(int stage) const { return barriers + stage; }
  __device__ std::uint64_t* empty(int stage) const { return barriers + T::kStages + stage; }
  __device__ std::uint64_t* lead() const { return barriers + 2 * T::kStages; }
  __device__ unsigned at(int stage) const { return memory + unsigned(stage * T::kBytes); }

  // One lane requests all boxes: those of the matrix that fit the ring, then, when the previous kernels have ended,
  // those of x; of peers, each requests its share of x for all. `policy`: of the matrix in L2. place(i): of tile i.
  template <class Place = TilesOfFewRows> __device__ void request(const CUtensorMap& w, const CUtensorMap& x,
                                                                  const Boxes& b, std::uint64_t policy, int rank = 0,
                                                                  const Place& place = {}) const {
    const int early = min(T::kStages, b.boxes);  // boxes of the first tile that are requested early
    TilePlace at = place(b.first);
    for (int i = 0; i < early; ++i) matrix(w, b, at.tile, i, i, policy);
    wait_for_previous_kernels();
    for (int i = 0; i < early; ++i) rows(x, b, at.row, i, i, rank);
    int stage = early % T::kStages, round = early / T::kStages, i = early;
    for (int n = b.first; n < b.end; n += b.stride, i = 0) {
      at = place(n);
#pragma unroll(T::kStaged > 0 ? 1 : 4)  // with peers the requesting lane has few registers
      for (; i < b.boxes; ++i) {
        if (round > 0) wait_barrier(empty(stage), (round - 1) & 1);
        matrix(w, b, at.tile, i, stage, policy), rows(x, b, at.row, i, stage, rank);
        if (++stage == T::kStages) stage = 0, ++round;
      }
    }
  }

 private:
  static __device__ int input(const Boxes& b, int i) { return (b.k0 + i) * T::Numbers::kInputs; }
  __device__ void matrix(const CUtensorMap& w, const Boxes& b, int tile, int i, int stage, std::uint64_t policy) const {
    const unsigned barrier = shared_address(full(stage));
    expect_copies(full(stage), T::kBytes);
    if (b.gated)
      copy_gated_box(at(stage), w, input(b, i), tile * T::kOuts / 16, barrier, policy);
    else
      copy_box(at(stage), w, input(b, i), tile * T::kOuts, barrier, policy);
  }
  __device__ void rows(const CUtensorMap& x, const Boxes& b, int first, int i, int stage, int rank) const {
    const unsigned to = at(stage) + unsigned(T::kMatrixBytes + rank * T::kShareBytes),
                   barrier = shared_address(full(stage));
    const int row = first + rank * (T::kRows / T::kPeers);
    if constexpr (T::kPeers > 1)
      copy_box_to_both(to, x, input(b, i), row, barrier, read_often());
    else
      copy_box(to, x, input(b, i), row, barrier, read_often());
  }
};

// The reader's side of the ring, in a warpgroup: 64 outputs times all rows, boxes in order.
template <class T> class BoxSums {
 public:
  using Sums = typename T::Sum[T::kRows / 2];

  __device__ BoxSums(const BoxRing<T>& ring, int group) : ring_(ring), group_(group) {}

  // sum = the product of the next `boxes` boxes, inputs ascending in one chain. Lane l of warp w holds outputs 16 w + l
  // / 4 and the eighth after it, rows 8 n + 2 (l % 4) and the next. `leads`: the lead barrier learns of the first box.
  __device__ void chain(Sums& sum, int boxes, bool leads = false) {
    const int lane = int(threadIdx.x) % 32;
    const auto release = [&](int stage) {
      if (T::kPeers == 1 && lane == 0) arrive(ring_.empty(stage));
      if (T::kPeers > 1 && lane < T::kPeers) arrive_at(ring_.empty(stage), lane);
    };
    int before = 0;
    for (int i = 0; i < boxes; ++i) {
      wait_barrier(ring_.full(stage_), round_ & 1);
      const std::uint64_t w = tile_descriptor(ring_.at(stage_) + unsigned(group_ * 64 * kBoxBytes), 16),
                          x = tile_descriptor(ring_.at(stage_) + T::kMatrixBytes, 16);
      pin(sum);
      begin_products();
#pragma unroll
      for (int k = 0; k < kBoxBytes / 32; ++k)
        multiply_boxes<typename T::Numbers>(sum, moved(w, 32 * k), moved(x, 32 * k), i + k > 0);
      end_products();
      pin(sum);
      wait_products<1>();  // the products of the box before
      if (i > 0) release(before);
      if (i == 1 && leads && lane == 0) arrive(ring_.lead());
      before = stage_;
      if (++stage_ == T::kStages) stage_ = 0, ++round_;
    }
    wait_products<0>();
    pin(sum);
    release(before);
    if (boxes == 1 && leads && lane == 0) arrive(ring_.lead());
  }

 private:
  const BoxRing<T>& ring_;
  int group_, stage_ = 0, round_ = 0;
};

#endif

}  // namespace foretoken

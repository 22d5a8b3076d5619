// The ring of boxes of a matrix and of x in shared memory, and their warpgroup products: shared by the kernels of
// tile_product.cu. This header must not know how the sums are used.
#pragma once
#include <cuda.h>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/products/matrix_boxes.cuh"
#include "kernels/cuda/products/warpgroup_boxes.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

// A block: warpgroups with 64 outputs each (some of the last one's may be unused), kRows rows of x, and a warp that
// requests boxes; kBlocks blocks on a multiprocessor.
template <int kRowsOf, int kOutsOf = 128, int kBlocksOf = 2> struct Tile {
  static constexpr int kRows = kRowsOf, kOuts = kOutsOf, kWorkers = 4 * ((kOuts + 63) / 64),
                       kThreads = 32 * (kWorkers + 1), kBlocks = kBlocksOf;
  static constexpr int kMatrixBytes = kOuts * kBoxInputs * 2, kBytes = kMatrixBytes + kRows * kBoxInputs * 2;
  static constexpr ProductTile kSize{kRows, kOuts, kBlocks};
  static constexpr int kStages = kSize.stages(), kShared = int(kSize.bytes());
  static_assert(kOuts % 16 == 0 && kBytes == kSize.stage());
  static_assert(has(kProductTiles, kSize) && kSize.fits(kLargestSharedMemory));
};

// The boxes of a block: `boxes` of each of its tiles, from input k0 on.
struct Boxes {
  int tile, stride, tiles, k0, boxes;
  bool gated;
};

#ifdef FORETOKEN_WARPGROUPS

__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline std::uint64_t read_often() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

template <class T> struct TileRing {
  unsigned memory;
  std::uint64_t* barriers;  // kStages full barriers, then kStages empty ones

  // Called by all threads of a block.
  __device__ TileRing(unsigned char* shared, std::uint64_t* barriers)
      : memory((shared_address(shared) + 1023u) & ~1023u), barriers(barriers) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < T::kStages; ++i) init_barrier(full(i), 1), init_barrier(empty(i), T::kWorkers);
      fence_barriers();
    }
    __syncthreads();
  }
  __device__ std::uint64_t* full(int stage) const { return barriers + stage; }
  __device__ std::uint64_t* empty(int stage) const { return barriers + T::kStages + stage; }
  __device__ unsigned at(int stage) const { return memory + unsigned(stage * T::kBytes); }

  // One lane requests all boxes: those of the matrix that fit the ring, then, when the previous kernels have ended,
  // those of x.
  __device__ void request(const CUtensorMap& w, const CUtensorMap& x, const Boxes& b) const {
    const std::uint64_t once = read_once(), often = read_often();
    const auto matrix = [&](int tile, int k, int stage) {
      const unsigned barrier = shared_address(full(stage));
      expect_copies(full(stage), T::kBytes);
      if (b.gated)
        copy_gated_box(at(stage), w, k, tile * T::kOuts / 16, barrier, once);
      else
        copy_box(at(stage), w, k, tile * T::kOuts, barrier, once);
    };
    const auto rows = [&](int k, int stage) {
      copy_box(at(stage) + T::kMatrixBytes, x, k, 0, shared_address(full(stage)), often);
    };
    const auto input = [&](int i) { return b.k0 + i * kBoxInputs; };
    const int early = min(T::kStages, b.boxes);  // boxes of the first tile that are requested early
    for (int i = 0; i < early; ++i) matrix(b.tile, input(i), i);
    wait_for_previous_kernels();
    for (int i = 0; i < early; ++i) rows(input(i), i);
    int stage = early % T::kStages, round = early / T::kStages;
    for (int tile = b.tile, i = early; tile < b.tiles; tile += b.stride, i = 0)
      for (; i < b.boxes; ++i) {
        if (round > 0) wait_barrier(empty(stage), (round - 1) & 1);
        matrix(tile, input(i), stage), rows(input(i), stage);
        if (++stage == T::kStages) stage = 0, ++round;
      }
  }
};

// The reader's side of the ring, in a warpgroup: 64 outputs times all rows, boxes in order.
template <class T> class TileSums {
 public:
  __device__ TileSums(const TileRing<T>& ring, int group) : ring_(ring), group_(group) {}

  // sum = the product of the next `boxes` boxes: m64nNk16, inputs ascending in one chain. Lane l of warp w holds
  // outputs 16 w + l / 4 and the eighth after it, rows 8 n + 2 (l % 4) and the next.
  __device__ void add_up(float (&sum)[T::kRows / 2], int boxes) {
    const bool elected = threadIdx.x % 32 == 0;
    int before = 0;
    for (int i = 0; i < boxes; ++i) {
      wait_barrier(ring_.full(stage_), round_ & 1);
      const std::uint64_t w = tile_descriptor(ring_.at(stage_) + unsigned(group_ * 64 * kBoxInputs * 2), 16),
                          x = tile_descriptor(ring_.at(stage_) + T::kMatrixBytes, 16);
      pin(sum);
      begin_products();
#pragma unroll
      for (int k = 0; k < kBoxInputs / 16; ++k) multiply_boxes(sum, moved(w, 32 * k), moved(x, 32 * k), i + k > 0);
      end_products();
      pin(sum);
      wait_products<1>();  // the products of the box before
      if (i > 0 && elected) arrive(ring_.empty(before));
      before = stage_;
      if (++stage_ == T::kStages) stage_ = 0, ++round_;
    }
    wait_products<0>();
    pin(sum);
    if (elected) arrive(ring_.empty(before));
  }

 private:
  const TileRing<T>& ring_;
  int group_, stage_ = 0, round_ = 0;
};

#endif

}  // namespace foretoken

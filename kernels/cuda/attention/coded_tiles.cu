// Attention over a quantized cache: see attention.cuh for the mathematics, and tiles.cuh for the kernel. Bytes: 2 *
// slots
// * kv_heads * (head_size + 4) for each sequence, once for its rows in one tile. Codes become bf16 in shared memory,
// once for the rows of a tile: 5 instructions for two numbers.
#include "kernels/cuda/attention/tiles.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

template <int kHead, int kGroups> void launch(const AttentionWork& work, cudaStream_t stream, bool dependent_launch) {
  constexpr int kStages = coded_tile_stages(kHead);
  using Shared = TileShared<kHead, kGroups, kStages, true>;
  static_assert(sizeof(Shared) == coded_tile_bytes(kHead, kGroups) && sizeof(Shared) <= kLeastSharedMemory);
  Grid grid{dim3(unsigned(tiles_of(work, work.tile)), unsigned(work.kv_heads), unsigned(work.splits)), kTileThreads,
            sizeof(Shared)};
  grid.dependent_launch = dependent_launch;
  launch_kernel("attend", stream, grid, attend_tiles<kHead, kGroups, kStages, true>, work);
}

template <int kHead> void launch_head(const AttentionWork& work, cudaStream_t stream, bool dependent_launch) {
  const int groups = tile_groups(work.tile);
  if (groups == 1)
    launch<kHead, 1>(work, stream, dependent_launch);
  else if (groups == 2)
    launch<kHead, 2>(work, stream, dependent_launch);
  else if constexpr (kHead <= 128)
    launch<kHead, 4>(work, stream, dependent_launch);
}

}  // namespace

void launch_coded_tiles(const AttentionWork& work, cudaStream_t stream, bool dependent_launch) {
  if (work.head_size <= 64)
    launch_head<64>(work, stream, dependent_launch);
  else if (work.head_size <= 128)
    launch_head<128>(work, stream, dependent_launch);
  else
    launch_head<256>(work, stream, dependent_launch);
}

}  // namespace foretoken

// Attention over a bf16 cache: see attention.cuh for the mathematics. Bytes: 4 * slots * kv_heads * head_size for each
// sequence, once for its rows in one tile (16, 32 or 64 query vectors). Operations: 4 * slots * heads * head_size a
// row.
#include "kernels/cuda/attention/tiles.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

template <int kHead, int kGroups, int kStages>
void launch_stages(const AttentionWork& work, cudaStream_t stream, bool dependent_launch) {
  static_assert(sizeof(TileShared<kHead, kGroups, kStages>) == tile_bytes(kHead, kGroups, kStages));
  Grid grid{dim3(unsigned(tiles_of(work, work.tile)), unsigned(work.kv_heads), unsigned(work.splits)), kTileThreads,
            sizeof(TileShared<kHead, kGroups, kStages>)};
  grid.dependent_launch = dependent_launch;
  launch_kernel("attend", stream, grid, attend_tiles<kHead, kGroups, kStages>, work);
}

// As many stages as fit in shared memory. Where the fewest do not fit, the launch is an Error.
template <int kHead, int kGroups>
void launch(const AttentionWork& work, std::int64_t limit, cudaStream_t stream, bool dependent_launch) {
  constexpr int kMost = most_tile_stages(kHead, kGroups), kFew = fewest_tile_stages(kHead);
  constexpr bool kAlwaysMost = tile_stages(kHead, kGroups, kLeastSharedMemory) == kMost;
  static_assert(tile_stages(kHead, kGroups, kLeastSharedMemory) > 0);
  if (kAlwaysMost || tile_stages(kHead, kGroups, limit) == kMost)
    launch_stages<kHead, kGroups, kMost>(work, stream, dependent_launch);
  else if constexpr (!kAlwaysMost)
    launch_stages<kHead, kGroups, kFew>(work, stream, dependent_launch);
}

template <int kHead>
void launch_head(const AttentionWork& work, std::int64_t limit, cudaStream_t stream, bool dependent_launch) {
  const int groups = tile_groups(work.tile);
  if (groups == 1)
    launch<kHead, 1>(work, limit, stream, dependent_launch);
  else if (groups == 2)
    launch<kHead, 2>(work, limit, stream, dependent_launch);
  else if constexpr (kHead <= 128)
    launch<kHead, 4>(work, limit, stream, dependent_launch);
}

}  // namespace

void launch_tiles(const AttentionWork& work, std::int64_t shared_memory, cudaStream_t stream, bool dependent_launch) {
  const auto go = [&](auto launch) { launch(work, shared_memory, stream, dependent_launch); };
  switch (tile_head(work.head_size)) {
    case 32:
      return go(launch_head<32>);
    case 64:
      return go(launch_head<64>);
    case 96:
      return go(launch_head<96>);
    case 128:
      return go(launch_head<128>);
    default:
      return go(launch_head<256>);
  }
}

}  // namespace foretoken

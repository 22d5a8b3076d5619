// Attention of tiles with a cap of scores (Gemma 2) or sinks (gpt-oss): the kernels of tiles.cu and coded_tiles.cu in
// an instantiation of their own, for fewer sizes of heads, so that models without rules pay nothing. Bytes and
// operations: as there, and a tanh for each score that has a cap.
#include "kernels/cuda/attention/tiles.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

template <int kHead, int kGroups, int kStages, bool kCodes>
void launch_ruled(const AttentionWork& work, cudaStream_t stream, bool dependent_launch) {
  Grid grid{dim3(unsigned(tiles_of(work, work.tile)), unsigned(work.kv_heads), unsigned(work.splits)), kTileThreads,
            sizeof(TileShared<kHead, kGroups, kStages, kCodes>)};
  grid.dependent_launch = dependent_launch;
  launch_kernel("attend", stream, grid, attend_tiles<kHead, kGroups, kStages, kCodes, true>, work);
}

// Of bf16 numbers as many stages as fit in shared memory; where the fewest do not fit, the launch is an Error.
template <int kHead, int kGroups>
void launch_ruled_groups(const AttentionWork& work, std::int64_t limit, cudaStream_t stream, bool dependent_launch) {
  constexpr int kMost = most_tile_stages(kHead, kGroups), kFew = fewest_tile_stages(kHead);
  if (work.codes != CacheCodes::none)
    launch_ruled<kHead, kGroups, coded_tile_stages(kHead), true>(work, stream, dependent_launch);
  else if (tile_stages(kHead, kGroups, limit) == kMost)
    launch_ruled<kHead, kGroups, kMost, false>(work, stream, dependent_launch);
  else if constexpr (kMost != kFew)
    launch_ruled<kHead, kGroups, kFew, false>(work, stream, dependent_launch);
}

template <int kHead>
void launch_ruled_head(const AttentionWork& work, std::int64_t limit, cudaStream_t stream, bool dependent_launch) {
  const int groups = tile_groups(work.tile);
  if (groups == 1)
    launch_ruled_groups<kHead, 1>(work, limit, stream, dependent_launch);
  else if (groups == 2)
    launch_ruled_groups<kHead, 2>(work, limit, stream, dependent_launch);
  else if constexpr (kHead <= 128)
    launch_ruled_groups<kHead, 4>(work, limit, stream, dependent_launch);
}

}  // namespace

void launch_ruled_tiles(const AttentionWork& work, std::int64_t shared_memory, cudaStream_t stream,
                        bool dependent_launch) {
  if (work.head_size <= 64)
    launch_ruled_head<64>(work, shared_memory, stream, dependent_launch);
  else if (work.head_size <= 128)
    launch_ruled_head<128>(work, shared_memory, stream, dependent_launch);
  else
    launch_ruled_head<256>(work, shared_memory, stream, dependent_launch);
}

}  // namespace foretoken

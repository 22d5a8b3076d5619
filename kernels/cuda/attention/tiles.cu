// Attention over a bf16 cache: see attention.cuh for the mathematics. Bytes: 4 * slots * kv_heads * head_size for each
// sequence, once for its rows in one tile (16, 32 or 64 query vectors). Operations: 4 * slots * heads * head_size a
// row.
#include "kernels/cuda/attention/tiles.cuh"

namespace foretoken {
namespace {

template <int kHead, int kGroups> void launch(const AttentionWork& work, cudaStream_t stream, bool overlaps) {
  Grid grid{dim3(unsigned(tiles_of(work, work.tile)), unsigned(work.kv_heads), unsigned(work.parts)), kTileThreads,
            sizeof(TileShared<kHead, kGroups>)};
  grid.overlaps = overlaps;
  launch_kernel("attend", stream, grid, attend_tiles<kHead, kGroups>, work);
}

template <int kHead> void launch_head(const AttentionWork& work, cudaStream_t stream, bool overlaps) {
  if (work.tile <= 16)
    launch<kHead, 1>(work, stream, overlaps);
  else if (work.tile <= 32)
    launch<kHead, 2>(work, stream, overlaps);
  else if constexpr (kHead <= 128)
    launch<kHead, 4>(work, stream, overlaps);
}

}  // namespace

void launch_tiles(const AttentionWork& work, cudaStream_t stream, bool overlaps) {
  if (work.head_size <= 32)
    launch_head<32>(work, stream, overlaps);
  else if (work.head_size <= 64)
    launch_head<64>(work, stream, overlaps);
  else if (work.head_size <= 96)
    launch_head<96>(work, stream, overlaps);
  else if (work.head_size <= 128)
    launch_head<128>(work, stream, overlaps);
  else
    launch_head<256>(work, stream, overlaps);
}

}  // namespace foretoken

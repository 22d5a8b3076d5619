// Rotation, storing and attention of few rows of many sequences: see stream.cuh. Bytes: keys and values of each
// sequence once, 4 * slots * kv_heads * head_size. Operations: 64 keys of 8 vectors cost a warp about 200 (heads of 64)
// or 350 (128) instructions.
#include "kernels/cuda/attention/stream.cuh"

namespace foretoken {
namespace {

template <int kHead> void launch(const StreamWork& work, cudaStream_t stream, bool dependent_launch) {
  const AttentionWork& a = work.of.a;
  const int cluster = work.cluster();
  // Splits of one block each are ordered by depth, so that blocks of the last, often short, start last.
  Grid grid{dim3(unsigned(a.sequences * cluster), unsigned(a.kv_heads), unsigned(a.splits / cluster)),
            32 * work.warps + 32, std::size_t(work.bytes), cluster, dependent_launch};
  launch_kernel("attend", stream, grid, attend_stream<kHead>, work);
}

}  // namespace

int stream_cluster(std::int64_t shared_memory) {
  const int threads = 32 * kStreamWarps + 32;
  return std::min(largest_cluster(attend_stream<64>, threads, shared_memory),
                  largest_cluster(attend_stream<128>, threads, shared_memory));
}

void launch_stream(const StreamWork& work, cudaStream_t stream, bool dependent_launch) {
  if (work.of.a.head_size == 64)
    launch<64>(work, stream, dependent_launch);
  else
    launch<128>(work, stream, dependent_launch);
}

}  // namespace foretoken

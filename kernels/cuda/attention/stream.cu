// Rotation, storing and attention of few rows of many sequences: see stream.cuh. Bytes: keys and values of each
// sequence once, 4 * slots * kv_heads * head_size. Operations: 64 keys of 8 vectors cost a warp about 200 (heads of 64)
// or 350 (128) instructions.
#include <algorithm>

#include "kernels/cuda/attention/boxes.cuh"
#include "kernels/cuda/attention/stream.cuh"

namespace foretoken {
namespace {

// Whether the pages can be described as TMA boxes.
bool has_boxes(StreamWork& w) {
  const AttentionWork& a = w.of.a;
  w.warps = (a.longest * a.group + kStreamVectors - 1) / kStreamVectors;
  if (!has_aligned_rows(w.of) || a.words > 0 || (a.head_size != 64 && a.head_size != 128) || w.warps > kStreamWarps)
    return false;
  w.box = describe_pages(w.keys, w.values, a);
  return w.box > 0;
}

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

bool plan_stream(StreamWork& w, const Machine& machine) {
  constexpr int kMostBlocks = 4, kWarps = 12;  // per multiprocessor: bounds from latency and from registers
  // Ring stages that a multiprocessor requests at once: more only queue, and delay the requests of other
  // multiprocessors (measured).
  constexpr int kAtOnce = 8;
  if (!has_boxes(w)) return false;
  AttentionWork& a = w.of.a;
  const int units = a.sequences * a.kv_heads, multiprocessors = machine.multiprocessors;
  int blocks = std::clamp(kWarps / (w.warps + 1), 1, kMostBlocks);
  a.splits = 1, w.apart = false;
  if (10 * units < 9 * multiprocessors && a.deepest > kClusterDepth && scratch_of(a) <= kMostScratch) {
    a.splits = stream_splits(units, blocks, a.deepest, multiprocessors), w.apart = a.splits > 1;
  } else if (10 * units < 9 * multiprocessors) {
    const int most =
        std::clamp(85 * std::min(blocks, 3) * multiprocessors / 100 / units, 1, std::min(machine.cluster, a.chunks));
    const int each = (a.chunks + most - 1) / most;
    a.splits = (a.chunks + each - 1) / each;
  }
  for (blocks = std::clamp((units * a.splits + multiprocessors - 1) / multiprocessors, 1, blocks);; --blocks) {
    w.stages = kMostStages;
    while (w.stages > 2 && blocks * (stream_bytes(w) + kReservedSharedMemory) > machine.multiprocessor_memory)
      --w.stages;
    if (w.stages * a.head_size < 384 && blocks > 1) continue;
    w.stages = std::min(w.stages, std::max(2, (kAtOnce + blocks - 1) / blocks));
    // All shared memory, so that no further block fits on a multiprocessor and blocks are distributed evenly.
    w.bytes = std::max(stream_bytes(w),
                       std::min(machine.block_memory, machine.multiprocessor_memory / blocks - kReservedSharedMemory));
    return w.bytes <= machine.block_memory;
  }
}

void launch_stream(const StreamWork& work, cudaStream_t stream, bool dependent_launch) {
  if (work.of.a.head_size == 64)
    launch<64>(work, stream, dependent_launch);
  else
    launch<128>(work, stream, dependent_launch);
}

}  // namespace foretoken

// Attention of few rows of many sequences: see stream.cuh. Bytes: keys and values of each sequence once, 4 * slots *
// kv_heads * head_size; of codes, with their scales, 2 * slots * kv_heads * (head_size + 4). At the bandwidth of an
// H200 64 keys and values in bf16 of heads of 128 take a multiprocessor some 1,800 cycles, codes 920, in which each
// quarter of it starts as many instructions. 64 keys of 8 vectors cost each of four warps some 260 instructions, of
// codes 500 (FP8; integers: 430), of which 290 (225) make bf16 of codes; of 32 vectors 500 and 900.
#include <algorithm>

#include "kernels/cuda/attention/boxes.cuh"
#include "kernels/cuda/attention/stream.cuh"

namespace foretoken {
namespace {

using Kernel = void (*)(StreamWork);

template <int kHead, CacheCodes kKind> Kernel kernel_of(int sets) {
  if (sets <= 1) return attend_stream<kHead, kKind, 1>;
  if (sets <= 2) return attend_stream<kHead, kKind, 2>;
  if constexpr (kKind == CacheCodes::none)
    if (sets > kTeamSets) return attend_stream<kHead, kKind, kMostSets>;
  return attend_stream<kHead, kKind, kTeamSets>;
}
template <int kHead> Kernel kernel_of(CacheCodes codes, int sets) {
  return codes == CacheCodes::none   ? kernel_of<kHead, CacheCodes::none>(sets)
         : codes == CacheCodes::int8 ? kernel_of<kHead, CacheCodes::int8>(sets)
                                     : kernel_of<kHead, CacheCodes::e4m3>(sets);
}
Kernel kernel_of(int head, CacheCodes codes, int sets) {
  return head == 64 ? kernel_of<64>(codes, sets) : kernel_of<128>(codes, sets);
}

// Whether the kernel takes heads and vectors, and the pages can be described as TMA boxes.
bool has_boxes(StreamWork& w, int most_sets) {
  const AttentionWork& a = w.of.a;
  w.sets = (a.longest * a.group + kSetVectors - 1) / kSetVectors;
  if (a.words > 0 || (a.head_size != 64 && a.head_size != 128) || w.sets > most_sets) return false;
  w.box = describe_pages(w.keys, w.values, a);
  return w.box > 0;
}

// The deepest ring with which `blocks` fit on a multiprocessor, of `most` stages at most.
void choose_stages(StreamWork& w, int blocks, int fewest, int most, const Machine& machine) {
  w.stages = most;
  while (w.stages > fewest && blocks * (stream_bytes(w) + kReservedSharedMemory) > machine.multiprocessor_memory)
    --w.stages;
}

}  // namespace

int stream_cluster(std::int64_t shared_memory) {
  int least = kLargestCluster;
  for (const int head : {64, 128})
    for (const int sets : {1, 2, kTeamSets, kMostSets})
      least = std::min(least,
                       largest_cluster(kernel_of(head, CacheCodes::none, sets), stream_threads(sets), shared_memory));
  return least;
}

bool plan_stream(StreamWork& w, const Machine& machine) {
  // Ring stages that a multiprocessor requests at once: more only queue, and delay the requests of other
  // multiprocessors (measured).
  constexpr int kAtOnce = 8;
  if (!has_aligned_rows(w.of) || !has_boxes(w, kMostSets)) return false;
  AttentionWork& a = w.of.a;
  const int units = a.sequences * a.kv_heads, multiprocessors = machine.multiprocessors;
  int blocks = stream_blocks(a.head_size, w.sets);
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
    choose_stages(w, blocks, 2, kMostStages, machine);
    if (w.stages * a.head_size < 384 && blocks > 1) continue;
    w.stages = std::min(w.stages, std::max(2, (kAtOnce + blocks - 1) / blocks));
    // All shared memory, so that no further block fits on a multiprocessor and blocks are distributed evenly.
    w.bytes = std::max(stream_bytes(w),
                       std::min(machine.block_memory, machine.multiprocessor_memory / blocks - kReservedSharedMemory));
    return w.bytes <= machine.block_memory;
  }
}

bool plan_coded_stream(StreamWork& w, const AttentionWork& work, const Machine& machine, int architecture) {
  constexpr int kAtOnce = 24;  // as many bytes as above
  w.of.a = work;
  AttentionWork& a = w.of.a;
  if (architecture < 90 || a.codes == CacheCodes::none || !a.q_bf16 || !a.q_aligned || !has_boxes(w, kTeamSets))
    return false;
  const int most_blocks = stream_blocks(a.head_size, w.sets), units = a.sequences * a.kv_heads;
  a.splits = 2 * units < 3 * machine.multiprocessors && scratch_of(a) <= kMostScratch
                 ? stream_splits(units, most_blocks, a.deepest, machine.multiprocessors)
                 : 1;
  w.apart = a.splits > 1;
  const int blocks =
      std::clamp((units * a.splits + machine.multiprocessors - 1) / machine.multiprocessors, 1, most_blocks);
  choose_stages(w, blocks, 4, std::clamp(kAtOnce / blocks, 4, kMostStages), machine);
  w.bytes = stream_bytes(w);
  return w.bytes + kReservedSharedMemory <= machine.block_memory;
}

void launch_stream(const StreamWork& work, cudaStream_t stream, bool dependent_launch) {
  const AttentionWork& a = work.of.a;
  const int cluster = work.cluster();
  // Splits of one block each are ordered by depth, so that blocks of the last, often short, start last.
  const Grid grid{dim3(unsigned(a.sequences * cluster), unsigned(a.kv_heads), unsigned(a.splits / cluster)),
                  stream_threads(work.sets), std::size_t(work.bytes), cluster, dependent_launch};
  launch_kernel("attend", stream, grid, kernel_of(a.head_size, a.codes, work.sets), work);
}

}  // namespace foretoken

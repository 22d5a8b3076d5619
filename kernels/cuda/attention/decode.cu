// Rotation, storing and attention of a few rows at once: see decode.cuh. Bytes: keys and values of each sequence, 4 *
// slots * kv_heads * head_size, once for every 32 query vectors. For one sequence that is little against the
// latency of one span: rotation, copy of 128 keys, two products, one exchange in the cluster.
#include <algorithm>

#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

using Kernel = void (*)(DecodeCall);

template <int kHead> Kernel kernel_of(int vectors) {
  static_assert(sizeof(DecodeShared<kHead, 1>) == decode_fixed_bytes(kHead, 1) &&
                sizeof(DecodeShared<kHead, 2>) == decode_fixed_bytes(kHead, 2) &&
                sizeof(DecodeShared<kHead, kTeamSets>) == decode_fixed_bytes(kHead, kTeamSets));
  return vectors <= kSetVectors       ? attend_decode<kHead, 1>
         : vectors <= 2 * kSetVectors ? attend_decode<kHead, 2>
                                      : attend_decode<kHead, kTeamSets>;
}
Kernel kernel_of(int head_size, int vectors) {
  return head_size <= 64 ? kernel_of<64>(vectors) : kernel_of<128>(vectors);
}

}  // namespace

std::int64_t decode_bytes(const DecodeWork& work) {
  const AttentionWork& a = work.a;
  return decode_bytes(a.head_size <= 64 ? 64 : 128, a.tile / kSetVectors, work.spans, a.splits, a.longest, a.group);
}

int decode_cluster(std::int64_t shared_memory) {
  int least = kLargestCluster;
  for (const int head : {64, 128})
    for (const int sets : {1, 2, kTeamSets})
      least = std::min(least, largest_cluster(kernel_of(head, sets * kSetVectors), kDecodeThreads, shared_memory));
  return least;
}

void launch_decode(const DecodeWork& work, cudaStream_t stream, bool dependent_launch) {
  const AttentionWork& a = work.a;
  const Grid grid{dim3(unsigned(a.sequences * a.splits), unsigned(a.kv_heads), unsigned(decode_blocks(a))),
                  kDecodeThreads, std::size_t(work.bytes), a.splits, dependent_launch};
  const std::uint64_t page_rows = std::uint64_t(a.page_rows);
  DecodeCall call{work, ((std::uint64_t(1) << 32) + page_rows - 1) / page_rows, {}};
  for (int n = 1; n <= kDecodeRows; ++n) call.inverse[n] = (65536 + n - 1) / n;
  launch_kernel("attend", stream, grid, kernel_of(a.head_size, a.tile), call);
}

}  // namespace foretoken

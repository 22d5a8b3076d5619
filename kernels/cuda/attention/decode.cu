// Rotation, storing and attention of a few rows at once: see decode.cuh. Bytes: keys and values of each sequence, 4 *
// slots * kv_heads * head_size, once for every two tiles of query vectors. For one sequence that is little against the
// latency of one span: rotation, copy of 128 keys, two products, one exchange in the cluster.
#include <algorithm>

#include "kernels/cuda/attention/decode.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

template <int kHead, int kTiles> std::int64_t shared_bytes(const DecodeWork& work) {
  static_assert(sizeof(DecodeShared<kHead, kTiles>) == decode_fixed_bytes(kHead, kTiles));
  return decode_bytes(kHead, kTiles, work.spans, work.a.splits, work.a.longest, work.a.group);
}

template <int kHead, int kTiles> void launch(const DecodeWork& work, cudaStream_t stream, bool dependent_launch) {
  Grid grid{
      dim3(unsigned(work.a.sequences * work.a.splits), unsigned(work.a.kv_heads), unsigned(decode_blocks(work.a))),
      kDecodeThreads, std::size_t(work.bytes), work.a.splits, dependent_launch};
  const std::uint64_t page_rows = std::uint64_t(work.a.page_rows);
  DecodeCall call{work, ((std::uint64_t(1) << 32) + page_rows - 1) / page_rows, {}};
  for (int n = 1; n <= kDecodeRows; ++n) call.inverse[n] = (65536 + n - 1) / n;
  launch_kernel("attend", stream, grid, attend_decode<kHead, kTiles>, call);
}

// Calls f<head, tiles>() of the kernel for this work.
template <class F> auto with_kernel(const DecodeWork& w, F f) {
  const bool narrow = w.a.head_size <= 64;
  if (w.a.tile == kDecodeTile) return narrow ? f.template operator()<64, 1>() : f.template operator()<128, 1>();
  return narrow ? f.template operator()<64, 2>() : f.template operator()<128, 2>();
}

}  // namespace

std::int64_t decode_bytes(const DecodeWork& work) {
  return with_kernel(work, [&]<int kHead, int kTiles>() { return shared_bytes<kHead, kTiles>(work); });
}

int decode_cluster(std::int64_t shared_memory) {
  int least = kLargestCluster;
  for (void (*kernel)(DecodeCall) :
       {attend_decode<64, 1>, attend_decode<128, 1>, attend_decode<64, 2>, attend_decode<128, 2>})
    least = std::min(least, largest_cluster(kernel, kDecodeThreads, shared_memory));
  return least;
}

void launch_decode(const DecodeWork& work, cudaStream_t stream, bool dependent_launch) {
  with_kernel(work, [&]<int kHead, int kTiles>() { launch<kHead, kTiles>(work, stream, dependent_launch); });
}

}  // namespace foretoken

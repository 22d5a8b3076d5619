// Rotation, storing and attention of a few rows at once: see attention_decode.cuh. Bytes: keys and values of each
// sequence, 4 * slots * kv_heads * head_size, once for every two tiles of query vectors. At one sequence that is
// nothing beside the latency of one chunk: turn, copy 128 keys, two products, one exchange in the cluster.
#include <algorithm>

#include "kernels/cuda/attention/decode.cuh"

namespace foretoken {
namespace {

template <int kHead, int kTiles> std::size_t shared_bytes(const DecodeWork& work) {
  using Shared = DecodeShared<kHead, kTiles>;
  const std::size_t part = std::size_t(work.a.part), parts = std::size_t(work.a.parts),
                    longest = std::size_t(work.a.longest);
  // The n <= parts blocks that have chunks, n * part of them, fold at most vectors / n + 1 vectors each; and 16 bytes
  // for alignment.
  const std::size_t vectors = std::min(longest * std::size_t(work.a.group), std::size_t(Shared::kVectors));
  return sizeof(Shared) + longest * (kHead / 2) * sizeof(Turn) +
         sizeof(float2) * (part * (vectors + parts) * (kHead / 2 + 1) + 2);
}

template <int kHead, int kTiles> void launch(const DecodeWork& work, cudaStream_t stream) {
  Grid grid{dim3(unsigned(work.a.sequences * work.a.parts), unsigned(work.a.kv_heads), unsigned(decode_blocks(work.a))),
            kDecodeThreads, shared_bytes<kHead, kTiles>(work), work.a.parts};
  grid.overlaps = true;
  const auto kernel = attend_decode<kHead, kTiles>;
  if (work.a.parts > kPortableCluster)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "attend");
  const std::uint64_t page_rows = std::uint64_t(work.a.page_rows);
  DecodeCall call{work, ((std::uint64_t(1) << 32) + page_rows - 1) / page_rows, {}};
  for (int n = 1; n <= kDecodeRows; ++n) call.inverse[n] = (65536 + n - 1) / n;
  launch_kernel("attend", stream, grid, kernel, call);
}

// What f<head, tiles>() says of the kernel for this work.
template <class F> auto with_kernel(const DecodeWork& w, F f) {
  const bool narrow = w.a.head_size <= 64;
  if (w.a.tile == kDecodeTile) return narrow ? f.template operator()<64, 1>() : f.template operator()<128, 1>();
  return narrow ? f.template operator()<64, 2>() : f.template operator()<128, 2>();
}

}  // namespace

std::int64_t decode_bytes(const DecodeWork& work) {
  return std::int64_t(with_kernel(work, [&]<int kHead, int kTiles>() { return shared_bytes<kHead, kTiles>(work); }));
}

int decode_cluster(std::int64_t shared_memory) {
  int least = kLargestCluster;
  for (void (*kernel)(DecodeCall) :
       {attend_decode<64, 1>, attend_decode<128, 1>, attend_decode<64, 2>, attend_decode<128, 2>})
    least = std::min(least, largest_cluster(kernel, kDecodeThreads, shared_memory));
  return least;
}

void launch_decode(const DecodeWork& work, cudaStream_t stream) {
  with_kernel(work, [&]<int kHead, int kTiles>() { launch<kHead, kTiles>(work, stream); });
}

}  // namespace foretoken

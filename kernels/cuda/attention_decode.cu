// Rotation, storing and attention of a few rows at once: see attention_decode.cuh. Bytes: keys and values of each sequence once, 4 *
// slots * kv_heads * head_size. At one sequence that is nothing beside the latency of one chunk: turn, copy 128 keys, two products,
// one exchange in the cluster.
#include "kernels/cuda/attention_decode.cuh"

#include <algorithm>

namespace foretoken {
namespace {

std::size_t shared_bytes(const DecodeWork& work, std::size_t fixed) {
  const std::size_t chunks = std::size_t(work.a.part) * std::size_t(work.a.parts);
  // The n blocks that have chunks share the result: n * part chunks of at most pairs / n + 1 pairs.
  const std::size_t pairs = std::size_t(std::min(work.a.longest * work.a.group, kDecodeRows)) * std::size_t(work.a.head_size) / 2;
  return fixed + sizeof(float2) * (chunks * kDecodeRows + std::size_t(work.a.part) * (pairs + std::size_t(work.a.parts)));
}

template <int kHead> void launch(const DecodeWork& work, cudaStream_t stream) {
  Grid grid{dim3(unsigned(work.a.sequences * work.a.parts), unsigned(work.a.kv_heads)), kDecodeThreads, shared_bytes(work, sizeof(DecodeShared<kHead>)), work.a.parts};
  grid.overlaps = true;
  if (work.a.parts > kPortableCluster) check(cudaFuncSetAttribute(attend_decode<kHead>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "attend");
  launch_kernel("attend", stream, grid, attend_decode<kHead>, work);
}

}  // namespace

std::int64_t decode_bytes(const DecodeWork& work) { return std::int64_t(shared_bytes(work, work.a.head_size <= 64 ? sizeof(DecodeShared<64>) : sizeof(DecodeShared<128>))); }

int decode_cluster(std::int64_t shared_memory) {
  return std::min(largest_cluster(attend_decode<64>, kDecodeThreads, shared_memory), largest_cluster(attend_decode<128>, kDecodeThreads, shared_memory));
}

void launch_decode(const DecodeWork& work, cudaStream_t stream) {
  if (work.a.head_size <= 64) launch<64>(work, stream);
  else launch<128>(work, stream);
}

}  // namespace foretoken

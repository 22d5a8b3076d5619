// Attention of long prompts by warpgroup products: see prompt.cuh. Bytes: keys and values once for 128 query vectors,
// mostly from L2. Operations: 4 * heads * head_size for each row and slot that it attends to.
#include "kernels/cuda/attention/boxes.cuh"
#include "kernels/cuda/attention/prompt_tree.cuh"

namespace foretoken {
namespace {

template <int kHead> void launch(const PromptWork& work, cudaStream_t stream, bool dependent_launch) {
  static_assert(sizeof(PromptShared<kHead>) == prompt_bytes(kHead) && prompt_bytes(kHead) <= kLargestSharedMemory);
  Grid grid{dim3(unsigned(work.a.kv_heads), unsigned(tiles_of(work.a, kPromptRows)), unsigned(work.a.splits)),
            kPromptThreads, sizeof(PromptShared<kHead>)};
  grid.dependent_launch = dependent_launch;
  const bool split = work.a.sums != nullptr, tree = work.a.words > 0;
  launch_kernel("attend", stream, grid,
                split ? (tree ? attend_prompt<kHead, true, true> : attend_prompt<kHead, true, false>)
                      : (tree ? attend_prompt<kHead, false, true> : attend_prompt<kHead, false, false>),
                work);
}

}  // namespace

bool rotates_queries(const AttentionWork& work) {
  const int rows = kPromptRows / work.group + 2;  // of a tile; their rotations are in the memory of the last ring stage
  return work.q_bf16 && work.q_aligned && (work.head_size == 64 || work.head_size == 128) && rows <= kStep;
}

void launch_prompt(const AttentionWork& work, cudaStream_t stream, bool dependent_launch) {
  PromptWork with{work, {}, {}, 0};
  if (work.head_size % 64 == 0) with.box = describe_pages(with.keys, with.values, work);
  if (work.head_size <= 64)
    launch<64>(with, stream, dependent_launch);
  else
    launch<128>(with, stream, dependent_launch);
}

}  // namespace foretoken

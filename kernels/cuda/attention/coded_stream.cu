// Attention of few rows of many sequences over a quantized cache: see coded_stream.cuh. Bytes: codes and scales of each
// sequence once, 2 * slots * kv_heads * (head_size + 4). Operations: 64 keys of 8 vectors cost each of four warps about
// 500 instructions (heads of 128, FP8; integers: 430), of which 290 (225) make bf16 of codes; of 32 vectors 900. At the
// bandwidth of an H200 a multiprocessor has about 920 cycles for these keys, in which each quarter of it starts as many
// instructions.
#include <algorithm>
#include <numeric>

#include "kernels/cuda/attention/coded_stream.cuh"

namespace foretoken {
namespace {

template <int kHead, CacheCodes kKind, class F> void with_sets(int sets, F f) {
  sets == 1   ? f(attend_coded_stream<kHead, kKind, 1>)
  : sets == 2 ? f(attend_coded_stream<kHead, kKind, 2>)
              : f(attend_coded_stream<kHead, kKind, 4>);
}
template <int kHead, class F> void with_codes(const CodedStreamWork& w, F f) {
  w.a.codes == CacheCodes::int8 ? with_sets<kHead, CacheCodes::int8>(w.sets, f)
                                : with_sets<kHead, CacheCodes::e4m3>(w.sets, f);
}
template <class F> void with_kernel(const CodedStreamWork& w, F f) {
  w.a.head_size == 64 ? with_codes<64>(w, f) : with_codes<128>(w, f);
}

// Describes keys and values; the rows of a box, or 0 where pages do not divide into boxes of 8 rows or more.
int describe_codes(CUtensorMap& keys, CUtensorMap& values, const AttentionWork& a) {
  const int rows = std::gcd(a.page_rows, kStep);
  if (rows < 8 || (a.key_scales | a.value_scales) % 16 != 0) return 0;
  PagePlane plane{a.pool + a.keys, a.pages, a.page_bytes, a.kv_heads, a.page_rows, a.head_size, rows};
  plane.codes = true;
  if (!describe(keys, plane)) return 0;
  plane.begin += a.values - a.keys;
  return describe(values, plane) ? rows : 0;
}

}  // namespace

bool plan_coded_stream(CodedStreamWork& to, const AttentionWork& a, const Machine& machine, int architecture) {
  // Stages that a multiprocessor requests at once, keys and values of a step each: as many bytes as stream.cuh does.
  constexpr int kAtOnce = 12;
  const int sets = (a.longest * a.group + kCodedVectors - 1) / kCodedVectors;
  to.a = a, to.sets = sets == 3 ? 4 : sets;
  if (architecture < 90 || a.codes == CacheCodes::none || a.words > 0 || !a.q_bf16 || !a.q_aligned ||
      (a.head_size != 64 && a.head_size != 128) || to.sets > kCodedSets)
    return false;
  to.box = describe_codes(to.keys, to.values, a);
  if (to.box == 0) return false;
  const int most_blocks = coded_stream_blocks(a.head_size, to.sets);
  const int units = a.sequences * a.kv_heads, multiprocessors = machine.multiprocessors;
  const std::int64_t scratch = scratch_bytes(std::int64_t(a.rows) * a.heads, a.head_size, a.deepest);
  to.a.splits = 2 * units < 3 * multiprocessors && scratch <= kMostScratch
                    ? stream_splits(units, most_blocks, a.deepest, multiprocessors)
                    : 1;
  int blocks = std::clamp((units * to.a.splits + multiprocessors - 1) / multiprocessors, 1, most_blocks);
  const auto bytes = [&] { return coded_stream_bytes(a.head_size, to.stages, to.sets) + kReservedSharedMemory; };
  for (to.stages = std::clamp(kAtOnce / blocks, 2, kCodedStages);
       to.stages > 2 && blocks * bytes() > machine.multiprocessor_memory;)
    --to.stages;
  return bytes() <= machine.block_memory;
}

void launch_coded_stream(const CodedStreamWork& work, cudaStream_t stream, bool dependent_launch) {
  Grid grid{dim3(unsigned(work.a.sequences), unsigned(work.a.kv_heads), unsigned(work.a.splits)), kCodedThreads,
            std::size_t(coded_stream_bytes(work.a.head_size, work.stages, work.sets))};
  grid.dependent_launch = dependent_launch;
  with_kernel(work, [&](auto* kernel) { launch_kernel("attend", stream, grid, kernel, work); });
}

}  // namespace foretoken

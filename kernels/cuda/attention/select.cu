// bound_pages and select_pages. Bytes of a selection: 2 * head_size bounds of every candidate and kv head (at 128k of
// context, 8 heads of 128 in bf16: 34 MB a layer and sequence, 7 us of an H200), once for each four queries of a table
// and head; scores, 4 bytes each, mostly stay in the L2 cache. score_pages: eight lanes share a page. keep_pages: one
// block for a table and head finds the lowest score to be kept, bit by bit, and writes the pages above it in order.
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/shared_memory.h"
#include "kernels/selected_pages.h"

namespace foretoken {
namespace {

// ---- bounds ----

constexpr int kBoundThreads = 128;

struct BoundLayer {
  std::int64_t keys, key_scales, bounds;
};
struct BoundWork {
  std::byte* pool;
  std::int64_t page_bytes;
  int page_rows, kv_heads, head_size;
  CacheCodes codes;
  bool kv_bf16;
  const BoundLayer* layers;
  const std::int32_t* pages;
};

__device__ float number_in_page(const BoundWork& w, const BoundLayer& layer, const std::byte* page, int head, int row,
                                int i) {
  const std::int64_t at = (std::int64_t(head) * w.page_rows + row) * w.head_size + i;
  const std::byte* const keys = page + layer.keys;
  if (w.codes != CacheCodes::none)
    return reinterpret_cast<const float*>(page + layer.key_scales)[head * w.page_rows + row] *
           number_of_code(w.codes, std::uint8_t(keys[at]));
  return w.kv_bf16 ? to_float(reinterpret_cast<const Bf16*>(keys)[at]) : reinterpret_cast<const float*>(keys)[at];
}

// Block (page, layer).
template <class T> __global__ void __launch_bounds__(kBoundThreads) bound_kernel(const BoundWork w) {
  wait_for_previous_kernels();
  let_next_kernel_start();
  const BoundLayer layer = w.layers[blockIdx.y];
  std::byte* const page = w.pool + w.pages[blockIdx.x] * w.page_bytes;
  const int numbers = w.kv_heads * w.head_size;
  T* const least = reinterpret_cast<T*>(page + layer.bounds);
  for (int n = int(threadIdx.x); n < numbers; n += kBoundThreads) {
    float low = __builtin_huge_valf(), high = -low;
    for (int row = 0; row < w.page_rows; ++row) {
      const float x = number_in_page(w, layer, page, n / w.head_size, row, n % w.head_size);
      low = fminf(low, x), high = fmaxf(high, x);
    }
    from_float(least[n], low), from_float(least[numbers + n], high);
  }
}

// ---- scores ----

constexpr int kScoreThreads = 128, kLanesEach = 8, kQueriesAtOnce = 4, kPagesEach = 2, kMostHead = 512;
constexpr int kPagesOfTile = kScoreThreads / kLanesEach * kPagesEach, kTiles = 4;

struct SelectWork {
  AttentionWork of;
  std::int64_t bounds;
  bool aligned;  // bounds may be read 8 numbers of bf16 at a time
  int width;
  const std::int32_t *candidates, *counts, *chosen;
  const std::int32_t* choosing;  // null: all rows
  float* scores;                 // [sequences, kv_heads, width]
  std::int32_t* tables;          // [sequences * kv_heads, table_width]
};

// Eight bounds from number i on; zeros behind the head's end.
__device__ inline void eight_of(const float* from, int i, int size, bool, float (&to)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) to[j] = i + j < size ? from[i + j] : 0.0f;
}
__device__ inline void eight_of(const Bf16* from, int i, int size, bool aligned, float (&to)[8]) {
  if (aligned) {
    const uint4 four = i < size ? *reinterpret_cast<const uint4*>(from + i) : uint4{};
    const std::uint32_t pairs[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; ++j)
      to[2 * j] = __uint_as_float(pairs[j] << 16), to[2 * j + 1] = __uint_as_float(pairs[j] & 0xffff0000u);
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) to[j] = i + j < size ? to_float(from[i + j]) : 0.0f;
}

// Four queries of a table and kv head, from query `first` on, split into what is multiplied by the greatest key and by
// the least; zeros behind the last.
struct SplitQueries {
  float above[kQueriesAtOnce][kMostHead], below[kQueriesAtOnce][kMostHead];

  // The first fours of each eight numbers before the second ones, so that eight lanes read from all banks.
  __device__ static int place(int i) { return i % 8 / 4 * (kMostHead / 2) + i / 8 * 4 + i % 4; }

  __device__ void load(const AttentionWork& w, int row, int head, int first, int queries) {
#pragma unroll
    for (int k = 0; k < kQueriesAtOnce; ++k) {
      const int query = first + k, of_row = row + query / w.group,
                begin = (head * w.group + query % w.group) * w.head_size;
      for (int i = int(threadIdx.x); i < kMostHead && i < (w.head_size + 7) / 8 * 8; i += kScoreThreads) {
        const float x = i < w.head_size && query < queries ? load_q(w, of_row, begin + i) : 0.0f;
        above[k][place(i)] = fmaxf(x, 0.0f), below[k][place(i)] = fminf(x, 0.0f);
      }
    }
  }
};

// Adds the products of eight numbers of one page to the scores of the queries.
__device__ inline void add_products(const SplitQueries& q, int i, const float (&low)[8], const float (&high)[8],
                                    float (&sums)[kQueriesAtOnce]) {
#pragma unroll
  for (int k = 0; k < kQueriesAtOnce; ++k) {
#pragma unroll
    for (int four = 0; four < 8; four += 4) {
      const float4 a = *reinterpret_cast<const float4*>(&q.above[k][SplitQueries::place(i + four)]),
                   b = *reinterpret_cast<const float4*>(&q.below[k][SplitQueries::place(i + four)]);
      sums[k] = __fmaf_rn(a.x, high[four], __fmaf_rn(b.x, low[four], sums[k]));
      sums[k] = __fmaf_rn(a.y, high[four + 1], __fmaf_rn(b.y, low[four + 1], sums[k]));
      sums[k] = __fmaf_rn(a.z, high[four + 2], __fmaf_rn(b.z, low[four + 2], sums[k]));
      sums[k] = __fmaf_rn(a.w, high[four + 3], __fmaf_rn(b.w, low[four + 3], sums[k]));
    }
  }
}

// The pages of one group of lanes: their bounds of one kv head.
template <class T> struct ScoredPages {
  const T* of[kPagesEach];
  __device__ ScoredPages(const SelectWork& work, int table, int head, int at, int count) {
#pragma unroll
    for (int p = 0; p < kPagesEach; ++p) {
      const int page = work.candidates[std::int64_t(table) * work.width + min(at + p, count - 1)];
      of[p] =
          reinterpret_cast<const T*>(work.of.pool + page * work.of.page_bytes + work.bounds) + head * work.of.head_size;
    }
  }
  // The scores of four queries, in every lane of the group.
  __device__ void add(const SelectWork& work, const SplitQueries& q, int lane,
                      float (&sums)[kPagesEach][kQueriesAtOnce]) const {
    const int size = work.of.head_size, greatest = work.of.kv_heads * size;
    for (int i = lane * 8; i < size; i += kLanesEach * 8) {
#pragma unroll
      for (int p = 0; p < kPagesEach; ++p) {
        float low[8], high[8];
        eight_of(of[p], i, size, work.aligned, low), eight_of(of[p] + greatest, i, size, work.aligned, high);
        add_products(q, i, low, high, sums[p]);
      }
    }
#pragma unroll
    for (int p = 0; p < kPagesEach; ++p)
#pragma unroll
      for (int k = 0; k < kQueriesAtOnce; ++k)
        for (int x = 1; x < kLanesEach; x *= 2) sums[p][k] += __shfl_xor_sync(~0u, sums[p][k], x);
  }
};

// Block (kTiles tiles of candidates, kv head, table): queries are split once for all tiles.
template <class T> __global__ void __launch_bounds__(kScoreThreads)
    score_pages(const __grid_constant__ SelectWork work) {
  __shared__ __align__(16) SplitQueries shared;
  static_assert(sizeof shared == kScoreBytes);
  const AttentionWork& w = work.of;
  const int head = int(blockIdx.y), table = int(blockIdx.z), lane = int(threadIdx.x) % kLanesEach,
            begin = int(blockIdx.x) * kTiles * kPagesOfTile;
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int count = work.counts[table];
  if (begin >= count || work.chosen[table] == count) return;
  const int row = w.begins[table],
            queries = (work.choosing ? work.choosing[table] : w.begins[table + 1] - row) * w.group;
  float most[kTiles][kPagesEach];
#pragma unroll
  for (int i = 0; i < kTiles * kPagesEach; ++i) most[i / kPagesEach][i % kPagesEach] = kUnseen;
  const auto place = [&](int tile) { return begin + tile * kPagesOfTile + int(threadIdx.x) / kLanesEach * kPagesEach; };
  for (int first = 0; first < queries; first += kQueriesAtOnce) {
    __syncthreads();
    shared.load(w, row, head, first, queries);
    __syncthreads();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (begin + tile * kPagesOfTile >= count) break;
      float sums[kPagesEach][kQueriesAtOnce] = {};
      ScoredPages<T>(work, table, head, place(tile), count).add(work, shared, lane, sums);
#pragma unroll
      for (int i = 0; i < kPagesEach * kQueriesAtOnce; ++i) {
        const int p = i / kQueriesAtOnce, k = i % kQueriesAtOnce;
        if (first + k < queries) most[tile][p] = fmaxf(most[tile][p], sums[p][k]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kTiles * kPagesEach; ++i) {
    const int at = place(i / kPagesEach) + i % kPagesEach;
    if (lane == 0 && at < count)
      work.scores[(std::int64_t(table) * w.kv_heads + head) * work.width + at] = most[i / kPagesEach][i % kPagesEach];
  }
}

// ---- selection ----

constexpr int kKeepThreads = 1024, kKeepWarps = kKeepThreads / 32;

// The sum over the block; `turn` alternates between two calls, so that one barrier is enough.
__device__ inline int sum_of_block(int count, int (&sums)[2][kKeepWarps], int turn) {
  const int of_warp = __reduce_add_sync(~0u, count);
  if (threadIdx.x % 32 == 0) sums[turn][threadIdx.x / 32] = of_warp;
  __syncthreads();
  return __reduce_add_sync(~0u, sums[turn][threadIdx.x % 32]);
}

// How many scores are above the least that is kept, and how many equal it.
struct Kept {
  int above = 0, equal = 0;
};
// Of the threads before this one; `all`: of the block.
__device__ inline Kept kept_before(Kept mine, Kept (&of_warps)[kKeepWarps], Kept& all) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const auto scanned = [lane](Kept k) {
    for (int x = 1; x < 32; x *= 2) {
      const int above = __shfl_up_sync(~0u, k.above, x), equal = __shfl_up_sync(~0u, k.equal, x);
      if (lane >= x) k.above += above, k.equal += equal;
    }
    return k;
  };
  const Kept upto = scanned(mine);
  if (lane == 31) of_warps[warp] = upto;
  __syncthreads();
  const Kept warps = scanned(of_warps[lane]);
  all = {__shfl_sync(~0u, warps.above, 31), __shfl_sync(~0u, warps.equal, 31)};
  const int above = __shfl_sync(~0u, warps.above, max(warp - 1, 0)),
            equal = __shfl_sync(~0u, warps.equal, max(warp - 1, 0));
  return {upto.above - mine.above + (warp > 0 ? above : 0), upto.equal - mine.equal + (warp > 0 ? equal : 0)};
}

// Consecutive scores of one thread, by their order: kItems in registers, or any number in memory.
template <int kItems> struct Scores {
  std::uint32_t of[kItems];
  __device__ Scores(const float* scores, int begin, int, int count) {
#pragma unroll
    for (int j = 0; j < kItems; ++j) of[j] = begin + j < count ? order_of_score(__float_as_uint(scores[begin + j])) : 0;
  }
  template <class F> __device__ void each(F f) const {
#pragma unroll
    for (int j = 0; j < kItems; ++j) f(j, of[j]);
  }
};
template <> struct Scores<0> {
  const float* scores;
  int items;
  __device__ Scores(const float* all, int begin, int each, int count)
      : scores(all + begin), items(max(0, min(each, count - begin))) {}
  template <class F> __device__ void each(F f) const {
    for (int j = 0; j < items; ++j) f(j, order_of_score(__float_as_uint(scores[j])));
  }
};

// Block (kv head, table). An order of 0 is none of a score's, but for one NaN.
template <int kItems> __global__ void __launch_bounds__(kKeepThreads)
    keep_pages(const __grid_constant__ SelectWork work) {
  __shared__ int sums[2][kKeepWarps];
  __shared__ Kept of_warps[kKeepWarps];
  const AttentionWork& w = work.of;
  const int head = int(blockIdx.x), table = int(blockIdx.y), t = int(threadIdx.x);
  const std::int64_t number = std::int64_t(table) * w.kv_heads + head;
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int count = work.counts[table], chosen = work.chosen[table];
  const std::int32_t* const candidates = work.candidates + std::int64_t(table) * work.width;
  std::int32_t* const to = work.tables + number * w.table_width;
  for (int i = chosen + t; i < w.table_width; i += kKeepThreads)
    to[i] = w.tables[std::int64_t(table) * w.table_width + i];
  if (chosen == count) {
    for (int i = t; i < count; i += kKeepThreads) to[i] = candidates[i];
    return;
  }
  const int each = kItems > 0 ? kItems : (count + kKeepThreads - 1) / kKeepThreads;
  const Scores<kItems> scores(work.scores + number * work.width, t * each, each, count);
  std::uint32_t least = 0;  // of the orders that are kept
  for (int bit = 31; bit >= 0; --bit) {
    const std::uint32_t tried = least | 1u << bit;
    int above = 0;
    scores.each([&](int, std::uint32_t order) { above += order >= tried; });
    const int all = sum_of_block(above, sums, bit & 1);
    if (all >= chosen) least = tried;
    if (all == chosen) break;
  }
  Kept mine, all;
  scores.each([&](int j, std::uint32_t order) {
    if (t * each + j < count) mine.above += order > least, mine.equal += order == least;
  });
  const Kept before = kept_before(mine, of_warps, all);
  int above = before.above, equal = before.equal;
  const int most_equal = chosen - all.above;
  scores.each([&](int j, std::uint32_t order) {
    const int i = t * each + j;
    if (i >= count || order < least) return;
    if (order > least || equal < most_equal) to[above + min(equal, most_equal)] = candidates[i];
    order > least ? ++above : ++equal;
  });
}

}  // namespace

void CudaBackend::bound_pages(std::span<const KvLayer> layers, std::span<const std::int32_t> pages) {
  enter();
  if (layers.empty() || pages.empty()) return;
  const KvLayer& kv = layers.front();
  for (const KvLayer& l : layers) {
    expect_bounds(l);
    if (l.kv_heads != kv.kv_heads || l.head_size != kv.head_size || l.dtype != kv.dtype)
      throw Error("cuda: bound_pages takes layers of the same heads and type; call it for each of them");
  }
  bounds_staging_.begin(std::int64_t(layers.size() * sizeof(BoundLayer) + pages.size() * 4) + 2 * Staging::kAlignment);
  const auto of_layers =
      bounds_staging_.array({std::int64_t(layers.size()), std::int64_t(sizeof(BoundLayer))}, DType::u8);
  const auto of_pages = bounds_staging_.array({std::int64_t(pages.size())}, DType::i32);
  for (std::size_t l = 0; l < layers.size(); ++l)
    reinterpret_cast<BoundLayer*>(of_layers.host.raw())[l] = {layers[l].keys, layers[l].key_scales, layers[l].bounds};
  std::ranges::copy(pages, of_pages.host.data<std::int32_t>());
  bounds_staging_.push();
  const BoundWork work{kv.pool.data<std::byte>(),
                       kv.pool.row_stride(),
                       kv.page_rows,
                       kv.kv_heads,
                       kv.head_size,
                       codes_of(kv.dtype),
                       kv.dtype == DType::bf16,
                       reinterpret_cast<const BoundLayer*>(of_layers.device.raw()),
                       of_pages.device.data<const std::int32_t>()};
  with_type("bound_pages", bounds_type(kv.dtype), [&](auto* type) {
    launch_kernel("bound_pages", stream_,
                  {dim3(unsigned(pages.size()), unsigned(layers.size())), kBoundThreads, 0, 1, dependent_launch()},
                  bound_kernel<std::remove_pointer_t<decltype(type)>>, work);
  });
}

Tensor CudaBackend::select_pages(const Tensor& q, const KvLayer& kv, const Layout& layout) {
  enter();
  expect_bounds(kv);
  const PageSelection& s = layout.selection;
  const Tensor tables = allocate({std::int64_t(layout.sequences) * kv.kv_heads, layout.table_width}, DType::i32);
  if (layout.rows == 0 || layout.sequences == 0 || layout.table_width == 0) return tables;
  if (s.width == 0) throw Error("cuda: select_pages of a layout that has nothing to select from (Layout::selection)");
  const Tensor scores = allocate({std::int64_t(layout.sequences) * kv.kv_heads, s.width}, DType::f32);
  SelectWork work{};
  work.of = attention_work(q, kv, layout, 1), work.bounds = kv.bounds;
  work.aligned = kv.head_size % 8 == 0 && (kv.bounds | kv.pool.row_stride()) % 16 == 0 &&
                 reinterpret_cast<std::uintptr_t>(kv.pool.raw()) % 16 == 0;
  work.width = s.width, work.candidates = s.candidates.data<const std::int32_t>();
  work.counts = s.counts.data<const std::int32_t>(), work.chosen = s.chosen.data<const std::int32_t>();
  work.choosing = s.choosing ? s.choosing.data<const std::int32_t>() : nullptr;
  work.scores = scores.data<float>(), work.tables = tables.data<std::int32_t>();
  with_type("select_pages", bounds_type(kv.dtype), [&](auto* type) {
    launch_kernel("select_pages", stream_,
                  {dim3(blocks_for(s.width, kTiles * kPagesOfTile), unsigned(kv.kv_heads), unsigned(layout.sequences)),
                   kScoreThreads, 0, 1, dependent_launch()},
                  score_pages<std::remove_pointer_t<decltype(type)>>, work);
  });
  constexpr int kItems = 8;
  launch_kernel("select_pages", stream_,
                {dim3(unsigned(kv.kv_heads), unsigned(layout.sequences)), kKeepThreads, 0, 1, dependent_launch()},
                s.width <= kItems * kKeepThreads ? keep_pages<kItems> : keep_pages<0>, work);
  needs_barrier_ = true;  // attention reads block tables early
  return tables;
}

}  // namespace foretoken

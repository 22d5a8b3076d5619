// route: of each row the experts that RoutingRules choose, with their shares; then all pairs by expert. logits f32
// [rows, experts]. Bytes: rows * (4 experts + 12 used) and pairs * 8. A warp chooses for a row; one block groups, so
// that the order within an expert is that of the pairs. Up to 64 rows are one kernel. held_experts: of those pairs what
// concerns the experts of one rank.
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

constexpr int kRouteThreads = 1024, kRouteWarps = kRouteThreads / 32, kAtOnce = 64;
constexpr unsigned kAll = 0xffffffffu;
constexpr int kMostGroups = 32;  // a lane has the score of one
constexpr float kInfinity = __builtin_huge_valf();

struct Route {
  const float* logits = nullptr;
  std::int64_t stride = 0;
  int rows = 0, experts = 0, used = 0;
  bool renormalized = false, sigmoid = false, sums_two = false;
  int groups = 1, used_groups = 1;
  float scale = 1;
  const float* correction = nullptr;  // [experts]; null: 0
  int* chosen = nullptr;              // [rows, used]
  float* shares = nullptr;            // [rows, used]
  int *pairs = nullptr, *offsets = nullptr, *touched = nullptr;
};

__device__ float key_of(float x) { return isnan(x) ? kInfinity : x; }

// The sum of the two greatest keys of a group, or the greatest.
template <int kEach> __device__ float score_of_group(const Route& a, const float (&key)[kEach], int group, int lane) {
  const int size = a.experts / a.groups, begin = group * size;
  float first = -kInfinity, second = -kInfinity;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = lane + 32 * i;
    if (e < begin || e >= begin + size) continue;
    second = fmaxf(second, fminf(first, key[i]));
    first = fmaxf(first, key[i]);
  }
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kAll, first, step), next = __shfl_xor_sync(kAll, second, step);
    second = fmaxf(fmaxf(second, next), fminf(first, other));
    first = fmaxf(first, other);
  }
  return key_of(a.sums_two ? first + second : first);
}

// Keys of the experts outside the groups that are used become the least.
template <int kEach> __device__ void keep_groups(const Route& a, float (&key)[kEach], int lane) {
  float own = -kInfinity;  // of group `lane`
  for (int g = 0; g < a.groups; ++g) {
    const float score = score_of_group(a, key, g, lane);
    if (lane == g) own = score;
  }
  unsigned kept = 0;
  for (int n = 0; n < a.used_groups; ++n) {
    float best = own;
    int at = lane < a.groups && !(kept >> lane & 1) ? lane : kMostGroups;
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(kAll, best, step);
      const int other_at = __shfl_xor_sync(kAll, at, step);
      if (other_at < kMostGroups && (at == kMostGroups || other > best || (other == best && other_at < at))) {
        best = other;
        at = other_at;
      }
    }
    kept |= 1u << at;
  }
  const int size = a.experts / a.groups;
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (const int e = lane + 32 * i; e < a.experts && !(kept >> (e / size) & 1)) key[i] = -kInfinity;
}

// The greatest number of all lanes; a NaN is greater than all.
template <int kEach> __device__ float greatest_of(const Route& a, const float (&v)[kEach], int lane) {
  float peak = -kInfinity;
  const auto take = [&](float x) { peak = isnan(peak) || peak >= x ? peak : x; };
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (lane + 32 * i < a.experts) take(v[i]);
  for (int step = 16; step > 0; step /= 2) take(__shfl_xor_sync(kAll, peak, step));
  return peak;
}

__device__ float score_of(const Route& a, float logit, float peak) {
  return a.sigmoid ? 1 / (1 + expf(-logit)) : expf(logit - peak);
}

// What experts are chosen by, where that is not their logits.
template <int kEach> __device__ void make_keys(const Route& a, const float (&v)[kEach], float peak, double mass,
                                               int lane, float (&keys)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = lane + 32 * i;
    keys[i] = float(double(score_of(a, v[i], peak)) / mass);
    if (a.correction && e < a.experts) keys[i] += __ldcg(a.correction + e);
    keys[i] = key_of(keys[i]);
  }
  if (a.used_groups < a.groups) keep_groups(a, keys, lane);
}

// kEach: logits of a lane, at most: expert lane + 32 i.
template <int kEach, bool kPlain> __device__ void choose(const Route& a, int row, int lane) {
  float v[kEach], keys[kPlain ? 1 : kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    v[i] = lane + 32 * i < a.experts ? __ldcg(a.logits + row * a.stride + lane + 32 * i) : -kInfinity;
  const float peak = a.sigmoid ? 0 : greatest_of(a, v, lane);
  double mass = 0, kept = 0;  // in double: sums of hundreds
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (lane + 32 * i < a.experts) mass += double(score_of(a, v[i], peak));
  for (int step = 16; step > 0; step /= 2) mass += __shfl_xor_sync(kAll, mass, step);
  if (a.sigmoid) mass = 1;
  if constexpr (!kPlain) make_keys(a, v, peak, mass, lane, keys);
  float before = kInfinity;
  int expert = -1;
  for (int j = 0; j < a.used; ++j) {
    // The best of those behind the last choice in the order.
    float best = -kInfinity, raw = 0;
    int at = 0x7fffffff;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = lane + 32 * i;
      const float k = kPlain ? key_of(v[i]) : keys[kPlain ? 0 : i];
      const bool behind = e < a.experts && (k < before || (k == before && e > expert));
      if (behind && (at == 0x7fffffff || k > best)) {
        best = k;
        at = e;
        raw = v[i];
      }
    }
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(kAll, best, step), other_raw = __shfl_xor_sync(kAll, raw, step);
      const int other_at = __shfl_xor_sync(kAll, at, step);
      const bool better =
          other_at != 0x7fffffff && (at == 0x7fffffff || other > best || (other == best && other_at < at));
      if (better) {
        best = other;
        at = other_at;
        raw = other_raw;
      }
    }
    before = best;
    expert = at;
    const float score = score_of(a, raw, peak);
    kept += double(score);
    if (lane == 0) {
      a.chosen[row * a.used + j] = at;
      a.shares[row * a.used + j] = score;
    }
  }
  if (a.sigmoid) kept += 1e-20;
  if (lane == 0)
    for (int j = 0; j < a.used; ++j) {
      float& share = a.shares[row * a.used + j];
      share = float(double(share) / (a.renormalized ? kept : mass) * double(a.scale));
    }
}

template <bool kPlain> __device__ void choose_any(const Route& a, int row, int lane) {
  if (a.experts <= 128)
    choose<4, kPlain>(a, row, lane);
  else if (a.experts <= 512)
    choose<16, kPlain>(a, row, lane);
  else
    choose<128, kPlain>(a, row, lane);
}

// Calls f(pair, its expert, the lanes that have the same one) for the pairs of a warp in order, 32 at a time; without a
// pair the expert is -1. Loads are ahead of their use.
template <class F> __device__ void for_pairs_of_warp(const Route& a, int begin, int end, int lane, F f) {
  constexpr int kAhead = 4;
  for (int first = begin; first < end; first += 32 * kAhead) {
    int expert[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int p = first + 32 * i + lane;
      expert[i] = p < end ? __ldcg(a.chosen + p) : -1;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      f(first + 32 * i + lane, expert[i], __match_any_sync(kAll, expert[i]));
      __syncwarp();
    }
  }
}

// offsets and touched from how many pairs each expert has, which becomes the number of those before. One warp.
__device__ void write_offsets(const Route& a, int* totals, int lane) {
  int sum = 0, touched = 0;
  for (int first = 0; first < a.experts; first += 32) {
    const int e = first + lane, n = e < a.experts ? totals[e] : 0;
    int through = n;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kAll, through, step);
      if (lane >= step) through += other;
    }
    const unsigned some = __ballot_sync(kAll, n > 0);
    if (e < a.experts) a.offsets[e] = totals[e] = sum + through - n;
    if (n > 0) a.touched[touched + __popc(some & ((1u << lane) - 1))] = e;
    sum += __shfl_sync(kAll, through, 31);
    touched += __popc(some);
  }
  if (lane == 0) a.offsets[a.experts] = sum;
  for (int i = touched + lane; i < a.experts; i += 32) a.touched[i] = -1;
}

// All threads of one block: a counting sort. A warp counts the pairs of its range by expert, and places them behind
// those of earlier experts and of the same expert in earlier warps.
__device__ void group(const Route& a) {
  __shared__ int counts[kRouteCounts], totals[kMostRoutedExperts];  // [warps, experts], [experts]
  static_assert(sizeof counts + sizeof totals == kRouteBytes);
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, count = a.rows * a.used,
            warps = min(kRouteWarps, kRouteCounts / a.experts), range = (count + 32 * warps - 1) / (32 * warps) * 32,
            begin = warp < warps ? min(count, warp * range) : count, end = min(count, begin + range);
  int* const mine = counts + warp * a.experts;
  for (int i = int(threadIdx.x); i < warps * a.experts; i += kRouteThreads) counts[i] = 0;
  __syncthreads();
  for_pairs_of_warp(a, begin, end, lane, [&](int, int expert, unsigned same) {
    if (expert >= 0 && lane == __ffs(int(same)) - 1) mine[expert] += __popc(same);
  });
  __syncthreads();
  for (int e = int(threadIdx.x); e < a.experts; e += kRouteThreads) {
    int before = 0;
    for (int w = 0; w < warps; ++w) {
      const int n = counts[w * a.experts + e];
      counts[w * a.experts + e] = before;
      before += n;
    }
    totals[e] = before;
  }
  __syncthreads();
  if (warp == 0) write_offsets(a, totals, lane);
  __syncthreads();
  for_pairs_of_warp(a, begin, end, lane, [&](int pair, int expert, unsigned same) {
    if (expert < 0) return;
    const int before = mine[expert];
    a.pairs[totals[expert] + before + __popc(same & ((1u << lane) - 1))] = pair;
    __syncwarp(same);
    if (lane == __ffs(int(same)) - 1) mine[expert] = before + __popc(same);
  });
}

template <bool kPlain> __global__ void __launch_bounds__(kRouteThreads) route_kernel(Route a) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  for (int row = int(threadIdx.x) / 32; row < a.rows; row += kRouteWarps)
    choose_any<kPlain>(a, row, int(threadIdx.x) % 32);
  __syncthreads();
  group(a);
}

template <bool kPlain> __global__ void __launch_bounds__(256) choose_kernel(Route a) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int row = int(blockIdx.x) * 8 + int(threadIdx.x) / 32;
  if (row < a.rows) choose_any<kPlain>(a, row, int(threadIdx.x) % 32);
}

__global__ void __launch_bounds__(kRouteThreads) group_kernel(Route a) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  group(a);
}

// a.chosen from the experts of all ranks, then its pairs.
__global__ void __launch_bounds__(kRouteThreads) held_kernel(Route a, const int* of_all, int first) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  for (int p = int(threadIdx.x); p < a.rows * a.used; p += kRouteThreads) {
    const int e = __ldcg(of_all + p) - first;
    a.chosen[p] = e >= 0 && e < a.experts ? e : -1;
  }
  __syncthreads();
  group(a);
}

}  // namespace

Routing CudaBackend::held_experts(const Routing& routing, int first, int count) {
  enter();
  const Routing r{.experts = count,
                  .used = routing.used,
                  .chosen = allocate(routing.chosen.shape(), DType::i32),
                  .shares = routing.shares,
                  .pairs = allocate({routing.count()}, DType::i32),
                  .offsets = allocate({count + 1}, DType::i32),
                  .touched = allocate({count}, DType::i32)};
  const Route a{.rows = int(routing.rows()),
                .experts = count,
                .used = routing.used,
                .chosen = r.chosen.data<int>(),
                .pairs = r.pairs.data<int>(),
                .offsets = r.offsets.data<int>(),
                .touched = r.touched.data<int>()};
  launch_kernel("held_experts", stream_, {dim3(1), kRouteThreads, 0, 1, dependent_launch()}, held_kernel, a,
                routing.chosen.data<int>(), first);
  return r;
}

Routing CudaBackend::route(const Tensor& logits, const RoutingRules& rules) {
  enter();
  expect_route(logits, rules);
  expect_width("route", logits, logits.dim(1));
  const std::int64_t rows = logits.dim(0), experts = logits.dim(1), used = rules.used;
  if (rules.groups > kMostGroups)
    throw Error("cuda: route of " + std::to_string(rules.groups) + " groups of experts; at most " +
                std::to_string(kMostGroups) + " are supported");
  if (experts > kMostRoutedExperts)
    throw Error("cuda: route of " + std::to_string(experts) + " experts; at most " +
                std::to_string(kMostRoutedExperts) + " are supported");
  const Routing r{.experts = int(experts),
                  .used = rules.used,
                  .chosen = allocate({rows, used}, DType::i32),
                  .shares = allocate({rows, used}, DType::f32),
                  .pairs = allocate({rows * used}, DType::i32),
                  .offsets = allocate({experts + 1}, DType::i32),
                  .touched = allocate({experts}, DType::i32)};
  const Route a{.logits = logits.data<float>(),
                .stride = logits.row_stride(),
                .rows = int(rows),
                .experts = int(experts),
                .used = rules.used,
                .renormalized = rules.renormalized,
                .sigmoid = rules.sigmoid,
                .sums_two = rules.sums_two,
                .groups = rules.groups,
                .used_groups = rules.used_groups,
                .scale = rules.scale,
                .correction = rules.correction.data<float>(),
                .chosen = r.chosen.data<int>(),
                .shares = r.shares.data<float>(),
                .pairs = r.pairs.data<int>(),
                .offsets = r.offsets.data<int>(),
                .touched = r.touched.data<int>()};
  const Grid one{dim3(1), kRouteThreads, 0, 1, dependent_launch()};
  if (rows <= kAtOnce) {
    launch_kernel("route", stream_, one, rules.by_logits() ? route_kernel<true> : route_kernel<false>, a);
    return r;
  }
  launch_kernel("route", stream_, {dim3(blocks_for(rows, 8)), 256, 0, 1, dependent_launch()},
                rules.by_logits() ? choose_kernel<true> : choose_kernel<false>, a);
  launch_kernel("route", stream_, one, group_kernel, a);
  return r;
}

}  // namespace foretoken

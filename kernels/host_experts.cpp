// Mixtures of experts in host memory, all but their products, by their definitions.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/host_backend.h"

namespace foretoken {
namespace {

constexpr float kGreatestKey = std::numeric_limits<float>::infinity();

// The numbers 0 .. count - 1, of which the first `used` are those of the greatest keys, the lowest among equals.
std::vector<int> greatest(const std::vector<float>& keys, int used) {
  std::vector<int> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + used, order.end(), [&](int a, int b) {
    const float of_a = keys[std::size_t(a)], of_b = keys[std::size_t(b)];
    return of_a > of_b || (of_a == of_b && a < b);
  });
  return order;
}

// Keys of the experts outside the groups that are used become the least.
void keep_groups(std::vector<float>& keys, const RoutingRules& r) {
  const std::size_t size = keys.size() / std::size_t(r.groups);
  std::vector<float> groups;
  for (auto first = keys.begin(); first != keys.end(); first += std::ptrdiff_t(size)) {
    std::vector<float> own(first, first + std::ptrdiff_t(size));
    std::partial_sort(own.begin(), own.begin() + (r.sums_two ? 2 : 1), own.end(), std::greater<>());
    groups.push_back(r.sums_two ? own[0] + own[1] : own[0]);
    if (std::isnan(groups.back())) groups.back() = kGreatestKey;
  }
  const std::vector<int> order = greatest(groups, r.used_groups);
  for (std::size_t i = std::size_t(r.used_groups); i < order.size(); ++i)
    std::fill_n(keys.begin() + std::ptrdiff_t(std::size_t(order[i]) * size), size, -kGreatestKey);
}

// The experts of a row, and their shares. Sums are added in the order of the experts: the mass of the softmax, and in
// the order of shares what those are divided by.
void choose(const float* logits, int experts, const RoutingRules& r, std::int32_t* chosen, float* shares) {
  const auto all = [&](const auto& f) {
    std::vector<double> of(static_cast<std::size_t>(experts));
    for (int e = 0; e < experts; ++e) of[std::size_t(e)] = f(e);
    return of;
  };
  const double peak = std::accumulate(logits, logits + experts, logits[0],
                                      [](float a, float b) { return std::isnan(a) || a >= b ? a : b; });
  std::vector<double> scores = all([&](int e) {
    return r.sigmoid ? double(float(1 / (1 + std::exp(-double(logits[e]))))) : std::exp(double(logits[e]) - peak);
  });
  const double mass = r.sigmoid ? 1 : std::accumulate(scores.begin(), scores.end(), 0.0);
  std::vector<float> keys(static_cast<std::size_t>(experts));
  for (std::size_t e = 0; e < keys.size(); ++e) {
    keys[e] = r.by_logits() ? logits[e] : float(scores[e] / mass);
    if (r.correction) keys[e] += r.correction.data<float>()[e];
    if (std::isnan(keys[e])) keys[e] = kGreatestKey;
  }
  if (r.used_groups < r.groups) keep_groups(keys, r);
  const std::vector<int> order = greatest(keys, r.used);
  double kept = 0;
  for (int j = 0; j < r.used; ++j) kept += scores[std::size_t(order[std::size_t(j)])];
  if (r.sigmoid) kept += 1e-20;
  for (int j = 0; j < r.used; ++j) {
    chosen[j] = order[std::size_t(j)];
    shares[j] = float(scores[std::size_t(chosen[j])] / (r.renormalized ? kept : mass) * double(r.scale));
  }
}

// Pairs by their experts: Routing::pairs, offsets and touched from its experts.
void list_pairs(const Routing& r) {
  const auto chosen = r.chosen.values<std::int32_t>();
  auto *const offsets = r.offsets.data<std::int32_t>(), *const touched = r.touched.data<std::int32_t>();
  std::fill_n(offsets, r.experts + 1, 0);
  for (const std::int32_t e : chosen)
    if (e >= 0) ++offsets[e + 1];
  for (std::int64_t e = 0, at = 0; e < r.experts; ++e) {
    touched[e] = -1;
    if (offsets[e + 1] > 0) touched[at++] = std::int32_t(e);
    offsets[e + 1] += offsets[e];
  }
  std::vector<std::int32_t> next(offsets, offsets + r.experts);
  for (std::size_t p = 0; p < chosen.size(); ++p)
    if (chosen[p] >= 0) r.pairs.data<std::int32_t>()[next[std::size_t(chosen[p])]++] = std::int32_t(p);
}

}  // namespace

Routing HostBackend::route(const Tensor& logits, const RoutingRules& rules) {
  expect_route(logits, rules);
  const int used = rules.used;
  const std::int64_t rows = logits.dim(0), experts = logits.dim(1), count = rows * used;
  const Routing r{.experts = int(experts),
                  .used = used,
                  .chosen = allocate({rows, used}, DType::i32),
                  .shares = allocate({rows, used}, DType::f32),
                  .pairs = allocate({count}, DType::i32),
                  .offsets = allocate({experts + 1}, DType::i32),
                  .touched = allocate({experts}, DType::i32)};
  for_each(int(rows), [&](int row) {
    choose(logits.row<float>(row), int(experts), rules, r.chosen.row<std::int32_t>(row), r.shares.row<float>(row));
  });
  list_pairs(r);
  return r;
}

Routing HostBackend::held_experts(const Routing& routing, int first, int count) {
  Routing r{.experts = count,
            .used = routing.used,
            .chosen = allocate(routing.chosen.shape(), DType::i32),
            .shares = routing.shares,
            .pairs = allocate({routing.count()}, DType::i32),
            .offsets = allocate({count + 1}, DType::i32),
            .touched = allocate({count}, DType::i32)};
  std::ranges::transform(routing.chosen.values<std::int32_t>(), r.chosen.data<std::int32_t>(),
                         [&](std::int32_t e) { return e >= first && e < first + count ? e - first : -1; });
  list_pairs(r);
  return r;
}

void HostBackend::add_shares(Tensor x, const Tensor& y, const Routing& routing) {
  expect_shares(x, y, routing);
  const std::int64_t used = routing.used, width = x.dim(1);
  for_each(int(x.dim(0)), [&](int r) {
    const float* const shares = routing.shares.row<float>(r);
    const std::int32_t* const chosen = routing.chosen.row<std::int32_t>(r);
    float* const to = x.row<float>(r);
    for (std::int64_t i = 0; i < width; ++i) {
      float sum = 0;
      for (std::int64_t j = 0; j < used; ++j)
        if (chosen[j] >= 0) sum += shares[j] * y.row<float>(r * used + j)[i];
      to[i] += sum;
    }
  });
}

void HostBackend::add_gated(Tensor x, const Tensor& y, const Tensor& logits) {
  expect_gated(x, y, logits);
  for (std::int64_t r = 0; r < x.dim(0); ++r) {
    const float gate = float(1 / (1 + std::exp(-double(*logits.row<float>(r)))));
    for (std::int64_t i = 0; i < x.dim(1); ++i) x.row<float>(r)[i] += gate * y.row<float>(r)[i];
  }
}

}  // namespace foretoken

// Mixtures of experts in host memory, all but their products, by their definitions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/host_backend.h"

namespace foretoken {
namespace {

// The experts of a row, and their shares. The mass of the softmax is added in the order of the experts.
void choose(const float* logits, int experts, int used, bool renormalized, std::int32_t* chosen, float* shares) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto key = [&](int e) { return std::isnan(logits[e]) ? kInfinity : logits[e]; };
  std::vector<int> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + used, order.end(),
                    [&](int a, int b) { return key(a) > key(b) || (key(a) == key(b) && a < b); });
  const double peak = logits[order[0]];
  double mass = 0, kept = 0;
  for (int e = 0; e < experts; ++e) mass += std::exp(logits[e] - peak);
  for (int j = 0; j < used; ++j) kept += std::exp(logits[order[std::size_t(j)]] - peak);
  for (int j = 0; j < used; ++j) {
    chosen[j] = order[std::size_t(j)];
    shares[j] = float(std::exp(logits[chosen[j]] - peak) / (renormalized ? kept : mass));
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

Routing HostBackend::route(const Tensor& logits, int used, bool renormalized) {
  expect_route(logits, used);
  const std::int64_t rows = logits.dim(0), experts = logits.dim(1), count = rows * used;
  const Routing r{.experts = int(experts),
                  .used = used,
                  .chosen = allocate({rows, used}, DType::i32),
                  .shares = allocate({rows, used}, DType::f32),
                  .pairs = allocate({count}, DType::i32),
                  .offsets = allocate({experts + 1}, DType::i32),
                  .touched = allocate({experts}, DType::i32)};
  for_each(int(rows), [&](int row) {
    choose(logits.row<float>(row), int(experts), used, renormalized, r.chosen.row<std::int32_t>(row),
           r.shares.row<float>(row));
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

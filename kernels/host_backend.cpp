#include "kernels/host_backend.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cache_codes.h"
#include "kernels/error.h"
#include "kernels/lane.h"

namespace foretoken {
namespace {

constexpr std::size_t kDistributionRowBytes = offsetof(DistributionRow, one_hot) + sizeof(DistributionRow::one_hot);

void convert(const float* from, std::byte* to, int n, DType dtype) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, std::size_t(n) * sizeof(float));
  } else {
    for (int i = 0; i < n; ++i) {
      const bf16 b(from[i]);
      std::memcpy(to + std::size_t(i) * 2, &b, 2);
    }
  }
}

}  // namespace

std::byte* slot_address(const KvLayer& kv, const KvPlane& plane, const std::int32_t* table, std::int32_t slot) {
  const std::int64_t page = table[slot / kv.page_rows];
  assert(page >= 0 && page < kv.pool.dim(0));
  return kv.pool.row<std::byte>(page) + plane.begin + slot % kv.page_rows * plane.bytes;
}

std::byte* slot_address(const KvLayer& kv, std::int64_t begin, const std::int32_t* table, std::int32_t slot) {
  return slot_address(kv, KvPlane{begin, kv.head_size * size_of(kv.dtype)}, table, slot);
}

void expect_rows(const char* operation, const Tensor& x, std::int64_t width) {
  if (x.rank() == 2 && x.dim(1) == width && x.dtype() == DType::f32) return;
  throw Error(std::string(operation) + ": expected F32 rows of width " + std::to_string(width) + ", got " +
              name_of(x.dtype()) + " " + x.shape().text() +
              "; the weights and the activations of a model must agree in shape");
}

void add_bias(Tensor y, const Weight& w) {
  if (!w.bias) return;
  for (std::int64_t r = 0; r < y.dim(0); ++r)
    for (std::int64_t i = 0; i < y.dim(1); ++i) y.row<float>(r)[i] += w.bias.data<float>()[i];
}

void keep_distribution(const DistributionRow& row, Distributions& distributions, int i) {
  std::byte* to = distributions.rows.row<std::byte>(i);
  DistributionRow kept = row;
  kept.threshold += 0.0f;  // -0 becomes 0: the two cut alike
  std::memcpy(to, &kept, kDistributionRowBytes);
  std::memset(to + kDistributionRowBytes, 0, sizeof(DistributionRow) - kDistributionRowBytes);
}

void copy_on_host(const Tensor& from, Tensor to) {
  assert(from.shape() == to.shape() && from.dtype() == to.dtype());
  if (from.elements() == 0) return;
  // Dense tensors are copied as one row.
  const std::int64_t rows = from.dense() && to.dense() ? 1 : from.dim(0), item = size_of(from.dtype());
  const std::int64_t bytes = from.bytes() / rows;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memmove(static_cast<std::byte*>(to.raw()) + r * to.row_stride() * item,
                 static_cast<const std::byte*>(from.raw()) + r * from.row_stride() * item, std::size_t(bytes));
  }
}

void HostBackend::scale(Tensor x, float by) {
  for (std::int64_t r = 0; r < x.dim(0); ++r)
    for (std::int64_t i = 0; i < x.dim(1); ++i) x.row<float>(r)[i] *= by;
}

void HostBackend::head_norm(Tensor x, const Tensor& gain, float epsilon) {
  const std::int64_t size = gain.dim(0);
  for (std::int64_t r = 0; r < x.dim(0); ++r) {
    for (float* head = x.row<float>(r); head < x.row<float>(r) + x.dim(1); head += size) {
      double squares = 0;
      for (std::int64_t i = 0; i < size; ++i) squares += double(head[i]) * head[i];
      const double inverse = 1 / std::sqrt(squares / double(size) + double(epsilon));
      for (std::int64_t i = 0; i < size; ++i) head[i] = float(head[i] * inverse * gain.data<float>()[i]);
    }
  }
}

void HostBackend::store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) {
  expect_rows("store", k, std::int64_t(kv.kv_heads) * kv.head_size);
  if (kv.latent == 0) expect_rows("store", v, std::int64_t(kv.kv_heads) * kv.head_size);
  if (has_scales(kv.dtype)) {
    for (int r = 0; r < layout.rows; ++r) store_codes(k, v, kv, layout, r, round_head);
    return;
  }
  const std::int64_t head_bytes = std::int64_t(kv.page_rows) * kv.head_size * size_of(kv.dtype);
  for (int r = 0; r < layout.rows; ++r) {
    const std::int32_t* table = layout.tables.row<std::int32_t>(layout.owner.data<std::int32_t>()[r]);
    const std::int32_t slot = layout.slots.data<std::int32_t>()[r];
    std::byte* key = slot_address(kv, kv.keys, table, slot);
    for (int h = 0; h < kv.kv_heads; ++h)
      convert(k.row<float>(r) + h * kv.head_size, key + h * head_bytes, kv.head_size, kv.dtype);
    if (kv.latent > 0) continue;
    std::byte* value = slot_address(kv, kv.values, table, slot);
    for (int h = 0; h < kv.kv_heads; ++h)
      convert(v.row<float>(r) + h * kv.head_size, value + h * head_bytes, kv.head_size, kv.dtype);
  }
}

Tensor HostBackend::gather(const Tensor& x, const Tensor& rows) {
  const std::int64_t n = rows.dim(0);
  Tensor y = allocate({n, x.dim(1)}, x.dtype());
  const std::size_t bytes = std::size_t(x.dim(1) * size_of(x.dtype()));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t r = *rows.row<std::int32_t>(i);
    assert(r >= 0 && r < x.dim(0));
    std::memcpy(static_cast<std::byte*>(y.raw()) + std::size_t(i) * bytes,
                static_cast<const std::byte*>(x.raw()) + r * x.row_stride() * size_of(x.dtype()), bytes);
  }
  return y;
}

Distributions HostBackend::distributions(const Tensor& logits, std::span<const Warp> warps) {
  const std::int64_t n = logits.dim(0);
  assert(std::int64_t(warps.size()) == n);
  Distributions distributions{logits, allocate({n, std::int64_t(sizeof(DistributionRow))}, DType::u8)};
  for_each(int(n), [&](int i) {
    keep_distribution(normalize(logits.row<float>(i), int(logits.dim(1)), warps[std::size_t(i)]), distributions, i);
  });
  return distributions;
}

void HostBackend::adjust(Tensor logits, std::span<const Adjustment> adjustments) {
  assert(std::int64_t(adjustments.size()) == logits.dim(0));
  for_each(int(adjustments.size()), [&](int i) {
    const Adjustment& a = adjustments[std::size_t(i)];
    for (int k = 0; k < a.count + a.length; ++k) adjust_item(logits.row<float>(i), a, k);
  });
}

void HostBackend::mask(Tensor logits, std::span<const std::uint32_t* const> allowed) {
  assert(std::int64_t(allowed.size()) == logits.dim(0));
  for_each(int(allowed.size()), [&](int i) {
    const std::uint32_t* const bits = allowed[std::size_t(i)];
    float* const row = logits.row<float>(i);
    const int vocab = bits ? int(logits.dim(1)) : 0;
    Token first = 0;
    while (first < vocab && !(masked(row[first], bits, first) > -INFINITY)) ++first;
    if (first == vocab) return;
    for (Token t = 0; t < vocab; ++t) row[t] = masked(row[t], bits, t);
  });
}

void HostBackend::draw_one(const Distribution& distribution, const TokenDraw& draw, Token* to) {
  const bool certain = distribution.row.one_hot && !chance_;
  if (distribution.row.greedy < 0 || certain) {
    std::fill_n(to, draw.siblings, -1);
    to[0] = distribution.row.greedy;
    return;
  }
  HostLane lane(*this, distribution.vocab, draw.draws);
  const auto write = [&](int j, Token x) { to[j] = x; };
  if (draw.siblings > 1 && draw.race)
    lane.race_siblings(distribution, draw.siblings, draw.position, write);
  else if (draw.siblings > 1)
    lane.siblings(distribution, draw.siblings, draw.name, write);
  else
    to[0] = draw.race ? lane.race(distribution, draw.position) : lane.draw(distribution, draw.name);
}

void HostBackend::draw(const Distributions& distributions, std::span<const TokenDraw> draws, Tensor to) {
  expect_draws(distributions, draws, to);
  const auto one = [&](int i) {
    const TokenDraw& draw = draws[std::size_t(i)];
    draw_one(distributions[draw.row < 0 ? i : draw.row], draw, draw.to ? draw.to : to.row<Token>(i));
  };
  if (chance_) {  // an enumerator requires the draws in order
    for (int i = 0; i < int(draws.size()); ++i) one(i);
  } else {
    for_each(int(draws.size()), one);
  }
}

void HostBackend::rank(const Distributions& raw, int k, Tensor tokens, Tensor q) {
  expect_ranks(raw, k, tokens, q);
  for_each(raw.count(), [&](int i) {
    const Distribution distribution = raw[i];
    const auto better = [&](Token a, Token b) {
      return distribution.logits[a] > distribution.logits[b] ||
             (distribution.logits[a] == distribution.logits[b] && a < b);
    };
    std::vector<Token> order(std::size_t(distribution.row.greedy < 0 ? 0 : distribution.vocab));
    std::iota(order.begin(), order.end(), 0);
    const auto end = order.begin() + std::min<std::ptrdiff_t>(k, std::ssize(order));
    std::partial_sort(order.begin(), end, order.end(), better);
    for (int j = 0; j < k; ++j) {
      const Token x = j < end - order.begin() ? order[std::size_t(j)] : -1;
      const float p = x < 0 ? 0 : float(distribution(x));
      tokens.row<Token>(i)[j] = p > 0 ? x : -1, q.row<float>(i)[j] = p;
    }
  });
}

void HostBackend::pick(const Tensor& known, const Tensor& at, Tensor to, int vocab) {
  for (std::int64_t i = 0; i < to.dim(0); ++i) {
    const auto* address = reinterpret_cast<const Token*>(*at.row<std::uint64_t>(i));
    *to.row<Token>(i) = within_vocabulary(address ? *address : *known.row<Token>(i), vocab);
  }
}

void HostBackend::recall(const Tensor& at, Tensor to, DType from) {
  expect_recall(at, to, from);
  const std::int64_t width = to.dim(1);
  for (std::int64_t i = 0; i < to.dim(0); ++i) {
    auto* const row = static_cast<std::byte*>(to.raw()) + i * to.row_stride() * size_of(to.dtype());
    const auto address = *at.row<std::uint64_t>(i);
    if (!address)
      std::memset(row, 0, std::size_t(width * size_of(to.dtype())));
    else if (from == to.dtype())
      std::memcpy(row, reinterpret_cast<const std::byte*>(address), std::size_t(width * size_of(from)));
    else
      std::transform(reinterpret_cast<const bf16*>(address), reinterpret_cast<const bf16*>(address) + width,
                     reinterpret_cast<float*>(row), [](bf16 x) { return float(x); });
  }
}

void HostBackend::spread(const Tensor& from, const Tensor& ids, Tensor to) {
  expect_spread(from, ids, to);
  for (std::int64_t i = 0; i < to.dim(0); ++i) {
    float* const row = to.row<float>(i);
    std::fill_n(row, to.dim(1), -std::numeric_limits<float>::infinity());
    for (std::int64_t j = 0; j < from.dim(1); ++j)
      if (const std::int32_t id = ids.data<std::int32_t>()[j]; id >= 0) row[id] = from.row<float>(i)[j];
  }
}

Tensor HostBackend::translate(const Tensor& tokens, const Tensor& ids) {
  const Tensor to = allocate(tokens.shape(), DType::i32);
  for (std::int64_t i = 0; i < tokens.dim(0); ++i) {
    const Token t = *tokens.row<Token>(i);
    *to.row<Token>(i) = t >= 0 && t < ids.dim(0) ? *ids.row<Token>(t) : -1;
  }
  return to;
}

void HostBackend::move(std::span<const Moves> moves) {
  for (const Moves& m : moves)
    for (const KvLayer& kv : m.layers)
      for (const KvPlane& plane : KvPlanes(kv)) {
        const auto at = [&](const PageRow& r, int head) {
          return kv.pool.row<std::byte>(r.page) + plane.begin +
                 (std::int64_t(head) * kv.page_rows + r.row) * plane.bytes;
        };
        for (const Moves::Row& row : m.rows)
          for (int h = 0; h < kv.kv_heads; ++h) std::memmove(at(row.to, h), at(row.from, h), std::size_t(plane.bytes));
      }
}

}  // namespace foretoken

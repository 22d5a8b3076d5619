#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "kernels/cache_codes.h"
#include "kernels/error.h"
#include "kernels/lane.h"

namespace foretoken {
namespace {

// One head: the pairs x[2 i], x[2 i + 1].
void rotate_neighbours(float* x, const float* cosine, const float* sine, int half) {
  for (int i = 0; i < half; ++i, x += 2) {
    const float a = x[0], b = x[1];
    x[0] = a * cosine[i] - b * sine[i];
    x[1] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace

Weight CpuBackend::prepare(Weight weight) {
  weight.prepared =
      std::make_shared<const PackedWeight>(pack(weight, operations_.rounds_to_bf16, weight_memory_, pool_));
  weight.forget_stored();
  return weight;
}

Tensor CpuBackend::embed(const Weight& weight, const Tensor& tokens) {
  const auto* packed = static_cast<const PackedWeight*>(weight.prepared.get());
  const Tensor& table = weight.values;
  Tensor y = allocate({tokens.dim(0), weight.in}, DType::f32);
  for_rows(y.dim(0), weight.in, [&](std::int64_t r) {
    const std::int32_t token = *tokens.row<std::int32_t>(r);
    assert(token < weight.out);
    const std::size_t bytes = std::size_t(weight.in) * sizeof(float);
    if (token < 0)
      std::memset(y.row<float>(r), 0, bytes);
    else if (packed)
      unpack_row(*packed, token, y.row<float>(r));
    else if (table.dtype() == DType::f32)
      std::memcpy(y.row<float>(r), table.row<float>(token), bytes);
    else if (table.dtype() == DType::bf16)
      operations_.from_bf16(table.row<std::uint16_t>(token), y.row<float>(r), weight.in);
    else
      std::transform(table.row<std::uint16_t>(token), table.row<std::uint16_t>(token) + weight.in, y.row<float>(r),
                     float_from_f16);
  });
  return y;
}

Tensor CpuBackend::rms_norm(const Tensor& x, const Tensor& gain, float epsilon) {
  expect_rows("rms_norm", x, gain.dim(0));
  Tensor y = allocate(x.shape(), DType::f32);
  for_rows(x.dim(0), x.dim(1), [&](std::int64_t r) {
    operations_.rms_norm(x.row<float>(r), gain.data<float>(), epsilon, y.row<float>(r), x.dim(1));
  });
  return y;
}

void CpuBackend::rope(Tensor q, Tensor k, const Layout& layout, const RotaryRules& rotation, int head_size) {
  const int half = int(rotation.frequencies.dim(0));
  const std::span<const std::int32_t> positions(layout.positions.data<std::int32_t>(), std::size_t(layout.rows));
  const Rotations::Table& table = rotations_.table(rotation.frequencies.values<float>(), rotation.factor, positions);
  for_rows(layout.rows, q.dim(1) + k.dim(1), [&](std::int64_t r) {
    const float* cosine = table.at(positions[std::size_t(r)]);
    for (const Tensor* x : {&q, &k})
      for (std::int64_t h = 0; h < x->dim(1); h += head_size)
        if (rotation.neighbours)
          rotate_neighbours(x->row<float>(r) + h, cosine, cosine + half, half);
        else
          operations_.rotate(x->row<float>(r) + h, cosine, cosine + half, half);
  });
}

Tensor CpuBackend::products_of_halves(const Tensor& gate_up,
                                      void (*row)(const float*, const float*, float*, std::int64_t)) {
  const std::int64_t width = gate_up.dim(1) / 2;
  Tensor y = allocate({gate_up.dim(0), width}, DType::f32);
  for_rows(y.dim(0), 4 * width,
           [&](std::int64_t r) { row(gate_up.row<float>(r), gate_up.row<float>(r) + width, y.row<float>(r), width); });
  return y;
}

Tensor CpuBackend::silu_mul(const Tensor& gate_up) { return products_of_halves(gate_up, operations_.silu_mul); }
Tensor CpuBackend::gelu_mul(const Tensor& gate_up) { return products_of_halves(gate_up, operations_.gelu_mul); }

Tensor CpuBackend::clamped_mul(const Tensor& gate_up, float slope, float limit) {
  const std::int64_t width = gate_up.dim(1) / 2;
  Tensor y = allocate({gate_up.dim(0), width}, DType::f32);
  for_rows(y.dim(0), 4 * width, [&](std::int64_t r) {
    const float* const gate = gate_up.row<float>(r);
    operations_.clamped_mul(gate, gate + width, slope, limit, y.row<float>(r), width);
  });
  return y;
}

void CpuBackend::softcap(Tensor x, float cap) {
  for_rows(x.dim(0), 4 * x.dim(1), [&](std::int64_t r) { operations_.softcap(x.row<float>(r), cap, x.dim(1)); });
}

void CpuBackend::silu_add(Tensor x, const Tensor& y) {
  expect_silu_add(x, y);
  for_rows(x.dim(0), 2 * x.dim(1), [&](std::int64_t r) {
    for (std::int64_t at = 0; at < x.dim(1); at += y.dim(1))
      operations_.silu_add(x.row<float>(r) + at, y.row<float>(r), y.dim(1));
  });
}

void CpuBackend::add(Tensor x, const Tensor& y) {
  expect_rows("add", x, y.dim(1));
  for_rows(x.dim(0), x.dim(1), [&](std::int64_t r) { operations_.add(x.row<float>(r), y.row<float>(r), x.dim(1)); });
}

void CpuBackend::store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) {
  expect_rows("store", k, std::int64_t(kv.kv_heads) * kv.head_size);
  if (kv.latent == 0) expect_rows("store", v, std::int64_t(kv.kv_heads) * kv.head_size);
  if (has_scales(kv.dtype)) {
    const auto round = [this](DType cache, std::span<const float> x, std::byte* codes) {
      return cache == DType::i8 ? operations_.integers_of_row(x.data(), std::int64_t(x.size()), 0,
                                                              reinterpret_cast<std::int8_t*>(codes))
                                : round_head(cache, x, codes);
    };
    for_rows(layout.rows, 2 * k.dim(1), [&](std::int64_t r) { store_codes(k, v, kv, layout, int(r), round); });
    return;
  }
  const std::int64_t head_bytes = std::int64_t(kv.page_rows) * kv.head_size * size_of(kv.dtype);
  const auto put = [&](const float* from, std::byte* to) {
    for (int h = 0; h < kv.kv_heads; ++h, from += kv.head_size, to += head_bytes) {
      if (kv.dtype == DType::bf16)
        operations_.narrow(from, reinterpret_cast<std::uint16_t*>(to), kv.head_size);
      else
        std::memcpy(to, from, std::size_t(kv.head_size) * sizeof(float));
    }
  };
  for_rows(layout.rows, 2 * k.dim(1), [&](std::int64_t r) {
    const std::int32_t* table = layout.tables.row<std::int32_t>(layout.owner.data<std::int32_t>()[r]);
    const std::int32_t slot = layout.slots.data<std::int32_t>()[r];
    put(k.row<float>(r), slot_address(kv, kv.keys, table, slot));
    if (kv.latent == 0) put(v.row<float>(r), slot_address(kv, kv.values, table, slot));
  });
}

Distributions CpuBackend::distributions(const Tensor& logits, std::span<const Warp> warps) {
  const std::int64_t n = logits.dim(0), vocab = logits.dim(1);
  assert(std::int64_t(warps.size()) == n);
  Distributions distributions{logits, allocate({n, std::int64_t(sizeof(DistributionRow))}, DType::u8)};
  for_rows(n, 4 * vocab, [&](std::int64_t r) {
    const Warp& warp = warps[std::size_t(r)];
    const Tensor scratch = allocate({vocab}, DType::f32);
    DistributionRow row;
    operations_.distribution_row(logits.row<float>(r), int(vocab), warp, scratch.data<float>(), &row);
    if (warp.raw_normalizer && row.greedy >= 0)
      row.raw_log_normalizer = foretoken::add(double(row.peak), log_exactly(row.raw_log_normalizer));
    keep_distribution(row, distributions, int(r));
  });
  return distributions;
}

double CpuBackend::distribution_tile(const Distribution& distribution, Token begin, int n, double* p) const {
  if (!distribution.row.one_hot)
    return operations_.distribution_tile(distribution.logits, distribution.row, begin, n, p);
  std::fill_n(p, n, 0.0);
  const Token hot = distribution.row.greedy - begin;
  if (hot < 0 || hot >= n) return 0;
  return p[hot] = 1;
}

}  // namespace foretoken

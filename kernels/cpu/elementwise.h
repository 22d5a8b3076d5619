// Row-wise operations for any kWidth. Each reads its rows once: 4 bytes in and 4 out a number, far less than the
// weights of the products beside them.
#pragma once
#include "kernels/cpu/hyperbolic.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors.h"

namespace foretoken {
namespace {

void widen_row(const std::uint16_t* x, float* y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) save(y + i, widen(x + i));
  if (i < n) save_some(y + i, widen_some(x + i, int(n - i)), int(n - i));
}

// To bf16 as bf16(float) does: to nearest even, subnormal numbers are kept, NaN stays NaN.
void narrow_row(const float* x, std::uint16_t* y, std::int64_t n) {
  typedef std::uint16_t Shorts __attribute__((vector_size(2 * kWidth)));
  const auto narrowed = [](Floats f) {
    const Words u = as_words(f), round = u + 0x7fffu + (u >> 16 & 1u);
    return __builtin_convertvector((f == f ? round : u | 0x400000u) >> 16, Shorts);
  };
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) save(y + i, narrowed(load<Floats>(x + i)));
  if (i < n) {
    const Shorts last = narrowed(load_some(x + i, int(n - i)));
    for (int j = 0; i + j < n; ++j) y[i + j] = last[j];
  }
}

// y = x / sqrt(mean x^2 + epsilon) * gain. Four partial sums, added in a fixed order.
void normalize_row(const float* x, const float* gain, float epsilon, float* y, std::int64_t n) {
  Floats sum[4] = {};
  std::int64_t i = 0;
  for (int s = 0; i + kWidth <= n; i += kWidth, s = (s + 1) & 3) {
    const Floats v = load<Floats>(x + i);
    sum[s] = fused(v, v, sum[s]);
  }
  if (i < n) {
    const Floats v = load_some(x + i, int(n - i));
    sum[0] = fused(v, v, sum[0]);
  }
  const float mean = total((sum[0] + sum[1]) + (sum[2] + sum[3])) / float(n);
  const float inverse = 1.0f / __builtin_sqrtf(mean + epsilon);
  for (i = 0; i + kWidth <= n; i += kWidth) save(y + i, load<Floats>(x + i) * inverse * load<Floats>(gain + i));
  for (; i < n; ++i) y[i] = x[i] * inverse * gain[i];
}

// g / (1 + exp(-g)) * u, through exp(-|g|), which cannot overflow.
inline Floats gated(Floats g, Floats u) {
  const Floats e = exp_weights(as_floats(as_words(g) | 0x80000000u));
  return g * ((g >= 0.0f ? spread(1.0f) : e) / (1.0f + e)) * u;
}

void silu_mul_row(const float* gate, const float* up, float* y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) save(y + i, gated(load<Floats>(gate + i), load<Floats>(up + i)));
  const int rest = int(n - i);
  if (rest > 0) save_some(y + i, gated(load_some(gate + i, rest), load_some(up + i, rest)), rest);
}

// gelu(g) * u, as g / (1 + exp(-2 t)) * u, since (1 + tanh t) / 2 is that: 1 + tanh would lose digits where t < 0.
void gelu_mul_row(const float* gate, const float* up, float* y, std::int64_t n) {
  const auto product = [](Floats g, Floats u) {
    const Floats t = (g + g * g * g * 0.044715f) * 1.59576912f;  // 2 sqrt(2 / pi)
    const Floats e = exp_weights(as_floats(as_words(t) | 0x80000000u));
    return g * ((t >= 0.0f ? spread(1.0f) : e) / (1.0f + e)) * u;
  };
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) save(y + i, product(load<Floats>(gate + i), load<Floats>(up + i)));
  const int rest = int(n - i);
  if (rest > 0) save_some(y + i, product(load_some(gate + i, rest), load_some(up + i, rest)), rest);
}

// g / (1 + exp(-slope g)) * (u + 1), g at most `limit` and u within +-limit.
void clamped_mul_row(const float* gate, const float* up, float slope, float limit, float* y, std::int64_t n) {
  const auto product = [&](Floats g, Floats u) {
    g = g > limit ? spread(limit) : g;
    u = u > limit ? spread(limit) : u < -limit ? spread(-limit) : u;
    const Floats t = g * slope, e = exp_weights(as_floats(as_words(t) | 0x80000000u));
    return g * ((t >= 0.0f ? spread(1.0f) : e) / (1.0f + e)) * (u + 1.0f);
  };
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) save(y + i, product(load<Floats>(gate + i), load<Floats>(up + i)));
  const int rest = int(n - i);
  if (rest > 0) save_some(y + i, product(load_some(gate + i, rest), load_some(up + i, rest)), rest);
}

// x = silu(x) + y.
void silu_add_row(float* x, const float* y, std::int64_t n) {
  const auto added = [](Floats v, Floats w) { return gated(v, spread(1.0f)) + w; };
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) save(x + i, added(load<Floats>(x + i), load<Floats>(y + i)));
  const int rest = int(n - i);
  if (rest > 0) save_some(x + i, added(load_some(x + i, rest), load_some(y + i, rest)), rest);
}

void add_row(float* x, const float* y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) save(x + i, load<Floats>(x + i) + load<Floats>(y + i));
  for (; i < n; ++i) x[i] += y[i];
}

void rotate_head(float* x, const float* cosine, const float* sine, int half) {
  int i = 0;
  for (; i + kWidth <= half; i += kWidth) {
    const Floats a = load<Floats>(x + i), b = load<Floats>(x + half + i);
    const Floats c = load<Floats>(cosine + i), s = load<Floats>(sine + i);
    save(x + i, a * c - b * s);
    save(x + half + i, b * c + a * s);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cosine[i] - b * sine[i];
    x[half + i] = b * cosine[i] + a * sine[i];
  }
}

// ---- ceilings ----

constexpr std::int64_t kReadAhead = 18432;  // bytes

// Prefetches as far ahead as the products do (kAhead in product_rows.h). Without it, 28 MiB of a last-level cache of 32
// MiB read at 75 GB/s, with it at 123; a limit that a product can exceed would be none.
double read_all(const void* data, std::int64_t bytes) {
  const float* p = static_cast<const float*>(data);
  Words sum[8] = {};
  const std::int64_t n = bytes / 4;
  for (std::int64_t i = 0; i + 8 * kWidth <= n; i += 8 * kWidth) {
    for (int j = 0; j < 8; ++j) {
      if (j % (16 / kWidth) == 0) __builtin_prefetch(p + i + j * kWidth + kReadAhead / 4, 0, 3);
      sum[j] |= load<Words>(p + i + j * kWidth);
    }
  }
  Words all = {};
  for (int j = 0; j < 8; ++j) all |= sum[j];
  return double(all[0]);
}

// Enough to hide the latency of an addition, and few enough for the registers.
constexpr int kChains = kWidth == 16 ? 20 : 10;

double multiply_add_steps(std::int64_t steps) {
  Floats sum[kChains], a = spread(1.0f), b = spread(0.5f);
#pragma GCC unroll 32
  for (int j = 0; j < kChains; ++j) sum[j] = spread(float(j));  // equal sums would be computed once
  for (std::int64_t i = 0; i < steps; ++i) {
    __asm__ volatile("" : "+m"(a), "+m"(b));  // prevents the compiler from computing the loop in advance
    const Floats x = a, w = b;
#pragma GCC unroll 32
    for (int j = 0; j < kChains; ++j) sum[j] = fused(x, w, sum[j]);
  }
  Floats all = {};
#pragma GCC unroll 32
  for (int j = 0; j < kChains; ++j) all += sum[j];
  return total(all);
}

}  // namespace
}  // namespace foretoken

// A next-token distribution p(x) that is evaluated on demand: logits, plus the parameters of its warp (1/T, a
// threshold, a normalizer). No [rows, vocab] table of probabilities is ever written. Host and device, same bits
// everywhere. This module must not know which model a distribution belongs to (target, draft) nor what a token means.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/host_device.h"
#include "kernels/tensor.h"

namespace foretoken {

using Token = std::int32_t;  // an index into a vocabulary; -1 means absent
// In place of a picked token that is outside the vocabulary (Backend::pick). Treated as absent wherever tokens are
// read.
constexpr Token kOutside = -3;
FORETOKEN_HD inline Token within_vocabulary(Token token, int vocab) {
  return token >= -1 && token < vocab ? token : kOutside;
}

// How logits become a distribution. Applied in this order: temperature, top-k, top-p, min-p; ties at a threshold are
// kept.
struct Warp {
  float temperature = 0;  // 0: the one-hot distribution of the greatest logit (lowest index among equals)
  int top_k = 0;          // 0: off (Fan et al. 2018, arXiv 1805.04833)
  // Keeps x while the mass of strictly more probable tokens is < top_p (Holtzman et al. 2020, arXiv 1904.09751).
  float top_p = 1;
  float min_p = 0;              // keeps x with p(x) >= min_p * max p (Nguyen et al. 2024, arXiv 2407.01082)
  bool raw_normalizer = false;  // also compute log sum exp(logits), for log-probabilities of the raw distribution
  bool operator==(const Warp&) const = default;
};

// exp(x) for x <= 0, float, in plain multiplications and additions so that the bits are the same on every device: x = n
// log 2 + r with an integer n and |r| <= log(2) / 2, and exp(x) = 2^n exp(r). Relative error below 3e-7; 0 below -87.
struct ExpParts {
  float t;         // n + 1.5 * 2^23: adding that rounds to an integer, which the low bits of t then are
  float mantissa;  // exp(r)
};
FORETOKEN_HD inline ExpParts exp_parts(float x) {
  const float t = add(mul(x, 1.44269504f), 12582912.0f);
  const float n = add(t, -12582912.0f);
  const float r = add(add(x, mul(n, -0.693359375f)), mul(n, 2.12194440e-4f));
  float y = 1.9875691500e-4f;
  y = add(mul(y, r), 1.3981999507e-3f);
  y = add(mul(y, r), 8.3334519073e-3f);
  y = add(mul(y, r), 4.1665795894e-2f);
  y = add(mul(y, r), 1.6666665459e-1f);
  y = add(mul(y, r), 5.0000001201e-1f);
  return {t, add(add(mul(y, mul(r, r)), r), 1.0f)};
}
FORETOKEN_HD inline float exp_weight(float x) {
  const ExpParts e = exp_parts(x);
  const std::int32_t bits = x < -87.0f ? 0 : (std::int32_t(add(e.t, -12582912.0f)) + 127) << 23;
  float scale;
  memcpy(&scale, &bits, 4);
  return x < -87.0f ? 0.0f : mul(e.mantissa, scale);
}

// log(v) for normal v > 0, double, in plain operations: v = m 2^e with m in [sqrt(1/2), sqrt(2)), atanh series of
// s = (m - 1) / (m + 1). Relative error below 1e-15.
FORETOKEN_HD inline double log_exactly(double v) {
  std::uint64_t u;
  memcpy(&u, &v, 8);
  int e = int(u >> 52 & 0x7ff) - 1022;
  u = (u & 0x000fffffffffffffull) | 0x3fe0000000000000ull;  // m in [1/2, 1)
  double m;
  memcpy(&m, &u, 8);
  if (m < 0.70710678118654752) {
    m = mul(m, 2.0);
    --e;
  }
  const double s = add(m, -1.0) / add(m, 1.0), z = mul(s, s);
  double y = 1.0 / 21;
  for (int k = 19; k >= 1; k -= 2) y = add(mul(y, z), 1.0 / k);
  return add(mul(double(e), 0.69314718055994530942), mul(mul(2.0, s), y));
}

// One fixed tree for every sum over a vocabulary: tiles of 256; in a tile, element i goes to accumulator i mod 8 in
// order, and the 8 are folded by halves; tiles are added in order. Doubles. Every device computes this tree.
constexpr int kTile = 256;

template <class F> FORETOKEN_HD double tile_sum(F f, int begin, int end) {  // end - begin <= kTile
  double a[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  int i = begin;
  for (; i + 8 <= end; i += 8)
    for (int j = 0; j < 8; ++j) a[j] = add(a[j], double(f(i + j)));
  for (int j = 0; i + j < end; ++j) a[j] = add(a[j], double(f(i + j)));
  return add(add(add(a[0], a[4]), add(a[2], a[6])), add(add(a[1], a[5]), add(a[3], a[7])));
}

// N sums by the same tree in one pass: f(x) is an array of what x adds to each.
template <int N, class F> std::array<double, N> tile_sums(F f, int begin, int end) {
  double a[N][8] = {};
  for (int i = begin; i < end; ++i) {
    const std::array<double, N> v = f(i);
    for (int k = 0; k < N; ++k) a[k][(i - begin) % 8] = add(a[k][(i - begin) % 8], v[std::size_t(k)]);
  }
  std::array<double, N> s;
  for (int k = 0; k < N; ++k) {
    const double* b = a[k];
    s[std::size_t(k)] = add(add(add(b[0], b[4]), add(b[2], b[6])), add(add(b[1], b[5]), add(b[3], b[7])));
  }
  return s;
}

template <class F> FORETOKEN_HD double vocabulary_sum(F f, int vocab) {
  double s = 0;
  for (int t = 0; t < vocab; t += kTile) s = add(s, tile_sum(f, t, t + kTile < vocab ? t + kTile : vocab));
  return s;
}

template <int N, class F> std::array<double, N> vocabulary_sums(F f, int vocab) {
  std::array<double, N> s{};
  for (int t = 0; t < vocab; t += kTile) {
    const auto tile = tile_sums<N>(f, t, t + kTile < vocab ? t + kTile : vocab);
    for (std::size_t k = 0; k < std::size_t(N); ++k) s[k] = add(s[k], tile[k]);
  }
  return s;
}

// The result of one pass over a row of logits. 40 bytes a row.
struct DistributionRow {
  double mass = 1;                // sum of the weights that are kept
  double raw_log_normalizer = 0;  // log sum exp(logits); only if Warp::raw_normalizer
  float inverse_temperature = 1;
  float peak = 0;       // the greatest logit
  float threshold = 0;  // a token is kept if its logit is >= threshold
  Token greedy = -1;    // index of the greatest logit, lowest among equals; -1: the row holds a NaN or no finite peak
  std::int32_t one_hot = 0;  // 1: all mass on `greedy`
};

// The distribution of one row. Probabilities are double.
struct Distribution {
  const float* logits = nullptr;  // [vocab]
  DistributionRow row;
  int vocab = 0;

  // Unnormalized probability: exp((logit - peak) / T), 0 where the warp removed the token.
  FORETOKEN_HD float weight(Token x) const {
    if (row.one_hot) return x == row.greedy ? 1.0f : 0.0f;
    return logits[x] >= row.threshold ? exp_weight(mul(add(logits[x], -row.peak), row.inverse_temperature)) : 0.0f;
  }
  FORETOKEN_HD double operator()(Token x) const { return double(weight(x)) / row.mass; }
  // log p(x) under the raw distribution (temperature 1, no cut); needs Warp::raw_normalizer.
  FORETOKEN_HD double raw_log_probability(Token x) const { return double(logits[x]) - row.raw_log_normalizer; }
};

// The distribution of a guess without a draw: all mass on one token.
struct OneHot {
  Token token;
  FORETOKEN_HD double operator()(Token x) const { return x == token ? 1.0 : 0.0; }
};

// The distributions of several rows, in the memory of a backend.
struct Distributions {
  Tensor logits;  // [n, vocab] f32
  Tensor rows;    // [n] DistributionRow, as bytes: u8 [n, sizeof(DistributionRow)]

  explicit operator bool() const { return bool(logits); }
  int count() const { return logits ? int(logits.dim(0)) : 0; }
  int vocab() const { return logits ? int(logits.dim(1)) : 0; }
  // Host memory only.
  Distribution operator[](int i) const {
    return {logits.row<float>(i), *reinterpret_cast<const DistributionRow*>(rows.row<std::uint8_t>(i)), vocab()};
  }
  Distributions slice(int begin, int n) const { return {logits.rows(begin, n), rows.rows(begin, n)}; }
};

// The row of one distribution from logits [vocab], in scalar code: the definition that every backend's `distributions`
// must match bit for bit.
DistributionRow normalize(const float* logits, int vocab, const Warp& warp);

}  // namespace foretoken

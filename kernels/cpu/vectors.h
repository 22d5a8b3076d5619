// Vectors of kWidth floats, by the compiler's vector extension, so that every operation is written once. To be
// included by an operations_*.cpp after it defined, in an anonymous namespace, kWidth, Floats fused(a, b, c) = a * b +
// c and Floats widen(h), which reads kWidth numbers in bf16. Everything here and in the files that include it has
// internal linkage: see kernels/CMakeLists.txt.
#pragma once
#include <cstdint>
#include <cstring>

#pragma GCC diagnostic ignored "-Wpsabi"  // no vector is passed between files
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of _mm512_undefined, inside the intrinsics of GCC 12
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace foretoken {
namespace {

typedef std::int32_t Ints __attribute__((vector_size(4 * kWidth)));
typedef std::uint32_t Words __attribute__((vector_size(4 * kWidth)));

typedef double Doubles __attribute__((vector_size(64)));  // the eight accumulators of a vocabulary sum
typedef float Floats8 __attribute__((vector_size(32)));

template <class V> inline V load(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}
template <class V> inline void save(void* p, const V& v) { std::memcpy(p, &v, sizeof(V)); }
inline Floats spread(float f) { return f - Floats{}; }
inline Floats as_floats(Words w) { return reinterpret_cast<Floats>(w); }
inline Words as_words(Floats f) { return reinterpret_cast<Words>(f); }

inline Floats greater(Floats a, Floats b) { return a > b ? a : b; }

// The first n < kWidth floats, then zeros; memory behind them is not read.
inline Floats load_some(const float* p, int n) {
  float v[kWidth] = {};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return load<Floats>(v);
}
inline Floats widen_some(const std::uint16_t* p, int n) {
  std::uint16_t v[kWidth] = {};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return widen(v);
}
inline void save_some(float* p, Floats v, int n) {
  float w[kWidth];
  save(w, v);
  for (int i = 0; i < n; ++i) p[i] = w[i];
}

// Sum of the lanes, by halves.
inline float total(Floats v) {
  float w[kWidth];
  save(w, v);
  for (int n = kWidth / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) w[i] += w[i + n];
  return w[0];
}
inline float greatest(Floats v) {
  float w[kWidth];
  save(w, v);
  float m = w[0];
  for (int i = 1; i < kWidth; ++i) m = w[i] > m ? w[i] : m;
  return m;
}

// exp_weight of kernels/distribution.h, lane by lane, the same operations in the same order.
inline Floats exp_weights(Floats x) {
  const Floats t = x * 1.44269504f + 12582912.0f;
  const Floats n = t + -12582912.0f;
  const Floats r = (x + n * -0.693359375f) + n * 2.12194440e-4f;
  Floats y = spread(1.9875691500e-4f);
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = (y * (r * r) + r) + 1.0f;
  const Words bits = reinterpret_cast<Words>(__builtin_convertvector(n, Ints) + 127) << 23;
  return x < -87.0f ? Floats{} : y * as_floats(bits);
}

}  // namespace
}  // namespace foretoken

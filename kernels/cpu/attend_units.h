// Reads the numbers of a cache into vectors of kWidth lanes, for attention. Included by attend_products.h, which
// multiplies them.
#pragma once
#include <utility>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors.h"

namespace foretoken {
namespace {

// Lane i is lane kWhich(i) of the concatenation of a and b.
template <auto kWhich> inline Floats shuffled(const Floats& a, const Floats& b) {
  return [&]<int... kLanes>(std::integer_sequence<int, kLanes...>) {
    return __builtin_shufflevector(a, b, kWhich(kLanes)...);
  }(std::make_integer_sequence<int, kWidth>());
}

// Lane s of the result is the sum of the lanes of v[s]; each sum is the same tree of additions.
template <int kStep> inline Floats transposed_sums(Floats (&v)[kWidth]) {
  // Lanes whose `kStep` bit is clear come from the first vector, the others from the second.
  constexpr auto kLow = [](int i) { return ((i & kStep) ? kWidth : 0) + (i & ~kStep); };
  constexpr auto kHigh = [](int i) { return ((i & kStep) ? kWidth : 0) + (i | kStep); };
  for (int i = 0; i < kWidth / kStep / 2; ++i) {
    const Floats a = v[2 * i], b = v[2 * i + 1];
    v[i] = shuffled<kLow>(a, b) + shuffled<kHigh>(a, b);
  }
  if constexpr (2 * kStep < kWidth)
    return transposed_sums<2 * kStep>(v);
  else
    return v[0];
}

// Reads a unit of kVectors vectors at p, or the first n numbers of one and then zeros. Number i of a unit is in vector
// i % kVectors, lane i / kVectors, so that bf16 is widened to f32 by a shift and a mask.
struct Singles {
  using Item = float;
  static constexpr int kVectors = 1;
  static void read(const Item* p, Floats (&v)[kVectors]) { v[0] = load<Floats>(p); }
};
struct Halves {
  using Item = std::uint16_t;
  static constexpr int kVectors = 2;
  static void read(const Item* p, Floats (&v)[kVectors]) {
    const Words pair = load<Words>(p);
    v[0] = as_floats(pair << 16), v[1] = as_floats(pair & 0xffff0000u);
  }
};
// Codes in the order of Singles, so that sums are those of an f32 cache.
struct Integers {
  using Item = std::byte;
  static constexpr int kVectors = 1;
  static void read(const Item* p, Floats (&v)[kVectors]) { v[0] = integers(p); }
};
struct E4m3 {  // times 2^-8, which scales make up for
  using Item = std::byte;
  static constexpr int kVectors = 1;
  static void read(const Item* p, Floats (&v)[kVectors]) { v[0] = e4m3(p); }
};
template <class S> constexpr int kUnit = S::kVectors * kWidth;  // numbers
template <class S> inline int units_of(int size) { return (size + kUnit<S> - 1) / kUnit<S>; }
// The units of a head are consecutive, except that the last one ends with the head. Its overlap with the unit before it
// is multiplied by zeros of q, and computed twice for values. This is the position of number i of a head in that order.
template <class S> inline int index_of_number(int size, int i) {
  const int u = i / kUnit<S>, ends_early = (u + 1) * kUnit<S> > size && size > kUnit<S>;
  const int within = ends_early ? i - (size - kUnit<S>) : i - u * kUnit<S>;
  return u * kUnit<S> + within % S::kVectors * kWidth + within / S::kVectors;
}
// Copies `size` consecutive numbers to that order; the rest of the last unit is zero.
template <class S> inline void arrange(int size, const float* x, float scale, float* to) {
  const int whole = size / kUnit<S>;
  constexpr auto kEven = [](int i) { return 2 * i; };
  constexpr auto kOdd = [](int i) { return 2 * i + 1; };
  for (int u = 0; u < whole; ++u, x += kUnit<S>, to += kUnit<S>) {
    if constexpr (S::kVectors == 1) {
      save(to, load<Floats>(x) * scale);
    } else {
      const Floats low = load<Floats>(x) * scale, high = load<Floats>(x + kWidth) * scale;
      save(to, shuffled<kEven>(low, high)), save(to + kWidth, shuffled<kOdd>(low, high));
    }
  }
  if (whole * kUnit<S> == size) return;
  for (int v = 0; v < S::kVectors; ++v) save(to + v * kWidth, Floats{});
  for (int i = whole * kUnit<S>; i < size; ++i) to[index_of_number<S>(size, i) - whole * kUnit<S>] = *x++ * scale;
}
// The inverse, with a division.
template <class S> inline void restore(int size, const float* x, float divisor, float* to) {
  const int whole = size / kUnit<S>;
  constexpr auto kLow = [](int i) { return i / 2 + i % 2 * kWidth; };
  constexpr auto kHigh = [](int i) { return i / 2 + i % 2 * kWidth + kWidth / 2; };
  for (int u = 0; u < whole; ++u) {
    if constexpr (S::kVectors == 1) {
      save(to + u * kUnit<S>, load<Floats>(x + u * kUnit<S>) / divisor);
    } else {
      const Floats even = load<Floats>(x + u * kUnit<S>) / divisor,
                   odd = load<Floats>(x + u * kUnit<S> + kWidth) / divisor;
      save(to + u * kUnit<S>, shuffled<kLow>(even, odd)), save(to + u * kUnit<S> + kWidth, shuffled<kHigh>(even, odd));
    }
  }
  for (int i = whole * kUnit<S>; i < size; ++i) to[i] = x[index_of_number<S>(size, i)] / divisor;
}
// Calls f(u, from) for every unit u of a head of `size` numbers; `from` is its first number.
template <class S, class F> inline void for_units(int size, const F& f) {
  const int whole = size / kUnit<S>;
  for (int u = 0; u < whole; ++u) f(u, u * kUnit<S>);
  if (whole * kUnit<S> < size) f(whole, whole > 0 ? size - kUnit<S> : 0);
}
// The unit of a head that begins at its number `from`; kWhole: the head has as many numbers as a unit.
template <class S, bool kWhole>
inline void read_unit(int size, const std::byte* row, int from, Floats (&v)[S::kVectors]) {
  const auto* p = reinterpret_cast<const typename S::Item*>(row);
  if constexpr (kWhole) {
    S::read(p + from, v);
  } else {
    typename S::Item some[kUnit<S>] = {};
    for (int i = 0; i < size; ++i) some[i] = p[i];
    S::read(some, v);
  }
}

}  // namespace
}  // namespace foretoken

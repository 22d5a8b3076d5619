// Rows of inputs become integers of 8 bits, for any kWidth, with the bits of round_row and formats::int8_rows
// (kernels/formats/activations). The row is read twice: 8 bytes in and 1 out a number.
#pragma once
#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors.h"

namespace foretoken {
namespace {

// Numbers rounded to bf16, to nearest even; finite ones that are not beyond its range.
inline Words in_bf16(Words u) { return (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u; }

// The nearest integers of x / s, -128 ... 127. A sum with 1.5 * 2^23 has steps of 1.
inline Ints nearest_integers(Floats x, float s) {
  Floats v = as_floats(in_bf16(as_words(x))) / spread(s);
  v = v < -128.0f ? spread(-128.0f) : v;
  v = v > 127.0f ? spread(127.0f) : v;
  return __builtin_convertvector((v + 12582912.0f) - 12582912.0f, Ints);
}

float integers_of_row(const float* x, std::int64_t n, float input_scale, std::int8_t* numbers) {
  typedef std::int8_t Bytes __attribute__((vector_size(kWidth)));
  constexpr std::int32_t kInfinity = 0x7f800000;
  Ints most = {};  // magnitudes are ordered as their bits are, NaN last
  std::int64_t i = 0;
  const auto include = [&](Floats v) {
    const Ints magnitude = reinterpret_cast<Ints>(as_words(v) & 0x7fffffffu);
    most = magnitude > most ? magnitude : most;
  };
  for (; i + kWidth <= n; i += kWidth) include(load<Floats>(x + i));
  if (i < n) include(load_some(x + i, int(n - i)));
  std::int32_t greatest = 0;
  for (int j = 0; j < kWidth; ++j) greatest = most[j] > greatest ? most[j] : greatest;
  const std::uint32_t rounded = in_bf16(Words{} + std::uint32_t(greatest))[0];
  const bool finite = greatest < kInfinity && rounded < std::uint32_t(kInfinity);
  const float magnitude = as_floats(Words{} + rounded)[0], scale = !finite           ? __builtin_nanf("")
                                                                   : input_scale > 0 ? input_scale
                                                                                     : magnitude / 127.0f;
  if (!finite || scale < __FLT_MIN__) {
    std::memset(numbers, 0, std::size_t(n));
    return finite ? 0 : scale;
  }
  for (i = 0; i + kWidth <= n; i += kWidth)
    save(numbers + i, __builtin_convertvector(nearest_integers(load<Floats>(x + i), scale), Bytes));
  if (i < n) {
    const Ints last = nearest_integers(load_some(x + i, int(n - i)), scale);
    for (int j = 0; i + j < n; ++j) numbers[i + j] = std::int8_t(last[j]);
  }
  return scale;
}

}  // namespace
}  // namespace foretoken

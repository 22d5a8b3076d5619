// FP8, e4m3 without infinities (OCP 8-bit floating point, OFP8): a sign, 4 bits of exponent with bias 7, 3 of mantissa;
// greatest 448. The greatest magnitude of a block becomes 448.
#include <algorithm>
#include <array>

#include "kernels/formats/formats.h"
#include "kernels/formats/rounding.h"

namespace foretoken::formats {
namespace {

constexpr float kGreatest = 448;

enum class Shared { output, tensor, tile };

class Float8 final : public WeightFormat {
 public:
  Float8(std::string name, std::string meaning, Shared shared)
      : name_(std::move(name)), meaning_(std::move(meaning)), shared_(shared) {
    for (std::size_t c = 0; c < numbers_.size(); ++c) numbers_[c] = float_of_e4m3(std::uint8_t(c));
  }
  std::string name() const override { return name_; }
  std::string meaning() const override { return meaning_; }
  int bits() const override { return 8; }
  std::span<const float> numbers() const override { return numbers_; }
  Coding coding() const override { return Coding::e4m3; }
  Block block(std::int64_t out, std::int64_t in) const override {
    if (shared_ == Shared::output) return {1, in};
    if (shared_ == Shared::tensor) return {out, in};
    return in % 128 == 0 ? Block{128, 128} : Block{};
  }
  GroupScale fit(const Extremes& e, DType scales) const override {
    return {usable(stored_scale(e.magnitude() / kGreatest, scales), e)};
  }
  void encode(std::span<const float> x, GroupScale s, std::uint8_t* codes) const override {
    for (std::size_t i = 0; i < x.size(); ++i) codes[i] = s.scale > 0 ? e4m3_of(x[i] / s.scale) : 0;
  }

 private:
  std::string name_, meaning_;
  Shared shared_;
  std::array<float, 256> numbers_;
};

}  // namespace

// Steps of the mantissa are 2^(e - 3). Rounding up to 16 steps gives the next exponent, with mantissa 0.
std::uint8_t e4m3_of(float x) {
  const std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7f;
  const float magnitude = std::abs(x);
  if (magnitude >= kGreatest) return sign | 0x7e;
  const int e = magnitude < 0x1p-6f ? -6 : std::ilogb(magnitude);
  const int steps = int(std::nearbyint(std::ldexp(magnitude, 3 - e)));
  return std::uint8_t(sign | (8 * (e + 6) + steps));
}

float float_of_e4m3(std::uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude =
      exponent == 0 ? std::ldexp(float(mantissa), -9) : std::ldexp(float(8 + mantissa), exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

const WeightFormat& fp8() {
  static const Float8 format("fp8", "e4m3, a scale for each output", Shared::output);
  return format;
}
const WeightFormat& fp8_tensor() {
  static const Float8 format("fp8_tensor", "e4m3, one scale", Shared::tensor);
  return format;
}
const WeightFormat& fp8_block() {
  static const Float8 format("fp8_block", "e4m3, a scale for each 128 outputs x 128 inputs", Shared::tile);
  return format;
}

}  // namespace foretoken::formats

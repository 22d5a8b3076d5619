// MXFP4 (OCP Microscaling Formats 1.0): e2m1 numbers 0, .5, 1, 1.5, 2, 3, 4, 6 with a sign, and a power of two for each
// 32 inputs: 2^(floor(log2 of the greatest magnitude) - 2), so that it lies in 4 ... 8; above 6 it becomes 6.
#include <algorithm>
#include <array>

#include "kernels/formats/formats.h"
#include "kernels/formats/rounding.h"

namespace foretoken::formats {
namespace {

constexpr std::array<float, 16> kNumbers = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                            -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// The nearest; of two, the one with an even code.
std::uint8_t e2m1_of(float x) {
  const float magnitude = std::abs(x);
  std::size_t at = 0;
  while (at < 7) {
    const float middle = (kNumbers[at] + kNumbers[at + 1]) / 2;
    if (magnitude < middle || (magnitude == middle && at % 2 == 0)) break;
    ++at;
  }
  return std::uint8_t((std::signbit(x) ? 8 : 0) | at);
}

class MxFloat4 final : public WeightFormat {
 public:
  std::string name() const override { return "mxfp4"; }
  std::string meaning() const override { return "e2m1, groups of 32 inputs with a power of two"; }
  int bits() const override { return 4; }
  std::span<const float> numbers() const override { return kNumbers; }
  Coding coding() const override { return Coding::e2m1; }
  Block block(std::int64_t, std::int64_t in) const override { return group_of(in, {32}); }
  // Exponents of the stored scale are -127 ... 127; a scale of f32 is normal from -126 on.
  GroupScale fit(const Extremes& e, DType) const override {
    const float magnitude = usable(e.magnitude(), e);
    return {magnitude > 0 ? std::ldexp(1.0f, std::max(std::ilogb(magnitude) - 2, -126)) : magnitude};
  }
  void encode(std::span<const float> x, GroupScale s, std::uint8_t* codes) const override {
    for (std::size_t i = 0; i < x.size(); ++i) codes[i] = s.scale > 0 ? e2m1_of(x[i] / s.scale) : 0;
  }
};

}  // namespace

const WeightFormat& mxfp4() {
  static const MxFloat4 format;
  return format;
}

}  // namespace foretoken::formats

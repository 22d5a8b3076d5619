// Four-bit codes of a table of 16 numbers, times the greatest magnitude of the group: NF4, quantiles of a normal
// distribution (QLoRA, arXiv 2305.14314), and FP4 with three bits of exponent and mantissa, as in bitsandbytes. Scales
// are quantized to 8 bits in turn.
#include <algorithm>
#include <array>

#include "kernels/formats/dynamic_map.h"
#include "kernels/formats/formats.h"
#include "kernels/formats/rounding.h"

namespace foretoken::formats {
namespace {

using Numbers = std::array<float, 16>;  // by code

class Table final : public WeightFormat {
 public:
  Table(std::string name, std::string meaning, const Numbers& numbers)
      : name_(std::move(name)), meaning_(std::move(meaning)), numbers_(numbers) {
    for (std::size_t c = 0; c < order_.size(); ++c) order_[c] = std::uint8_t(c);
    std::ranges::stable_sort(order_, {}, [this](std::uint8_t c) { return numbers_[c]; });
  }
  std::string name() const override { return name_; }
  std::string meaning() const override { return meaning_; }
  int bits() const override { return 4; }
  std::span<const float> numbers() const override { return numbers_; }
  Block block(std::int64_t, std::int64_t in) const override { return group_of(in, {64, 32, 16}); }
  GroupScale fit(const Extremes& e, DType) const override { return {usable(e.magnitude(), e)}; }
  void round_scales(std::span<float> scales) const override { round_by_dynamic_map(scales, mean_of(scales)); }
  void encode(std::span<const float> x, GroupScale s, std::uint8_t* codes) const override {
    for (std::size_t i = 0; i < x.size(); ++i) codes[i] = nearest(s.scale > 0 ? x[i] / s.scale : 0);
  }

 private:
  // The greater of two numbers only where it is nearer.
  std::uint8_t nearest(float x) const {
    std::size_t at = 0;
    while (at + 1 < order_.size() && x > (numbers_[order_[at]] + numbers_[order_[at + 1]]) / 2) ++at;
    return order_[at];
  }

  std::string name_, meaning_;
  Numbers numbers_;
  std::array<std::uint8_t, 16> order_;  // codes by their numbers
};

constexpr Numbers kNormal = {-1.0f,
                             -0.6961928009986877f,
                             -0.5250730514526367f,
                             -0.39491748809814453f,
                             -0.28444138169288635f,
                             -0.18477343022823334f,
                             -0.09105003625154495f,
                             0.0f,
                             0.07958029955625534f,
                             0.16093020141124725f,
                             0.24611230194568634f,
                             0.33791524171829224f,
                             0.44070982933044434f,
                             0.5626170039176941f,
                             0.7229568362236023f,
                             1.0f};
constexpr Numbers kFloat = {0.0f,  0.0625f / 12,  8.0f / 12,  1.0f,  4.0f / 12,  6.0f / 12,  2.0f / 12,  3.0f / 12,
                            -0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12};

}  // namespace

const WeightFormat& nf4() {
  static const Table format("nf4", "quantiles of a normal distribution, groups of 64 inputs, else 32 or 16", kNormal);
  return format;
}
const WeightFormat& fp4() {
  static const Table format("fp4", "a sign and 3 bits of exponent and mantissa, groups of 64 inputs, else 32 or 16",
                            kFloat);
  return format;
}

}  // namespace foretoken::formats

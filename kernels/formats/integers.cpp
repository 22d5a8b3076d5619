// Integers of 4 to 8 bits. Symmetric: w = scale * q, where the greatest magnitude of a group lies at half the range
// (7.5 steps of 4 bits). Asymmetric: w = scale * (q - zero) with a zero point that is one of the integers, so that 0
// stays 0. Both as min-max rounding of compressed-tensors.
#include <algorithm>
#include <vector>

#include "kernels/formats/formats.h"
#include "kernels/formats/rounding.h"

namespace foretoken::formats {
namespace {

constexpr std::initializer_list<int> kGroups = {128, 64, 32, 16};

class Integers : public WeightFormat {
 public:
  Integers(std::string name, std::string meaning, int bits, bool grouped)
      : name_(std::move(name)), meaning_(std::move(meaning)), bits_(bits), grouped_(grouped) {
    for (int c = 0; c < 1 << bits; ++c) numbers_.push_back(float(c) - half());
  }
  std::string name() const override { return name_; }
  std::string meaning() const override { return meaning_; }
  int bits() const override { return bits_; }
  std::span<const float> numbers() const override { return numbers_; }
  Coding coding() const override { return Coding::integers; }
  Block block(std::int64_t, std::int64_t in) const override { return grouped_ ? group_of(in, kGroups) : Block{1, in}; }
  GroupScale fit(const Extremes& e, DType scales) const override {
    return {usable(stored_scale(e.magnitude() / (half() - 0.5f), scales), e)};
  }
  void encode(std::span<const float> x, GroupScale s, std::uint8_t* codes) const override {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float q = s.scale > 0 ? std::nearbyint(x[i] / s.scale) + s.zero : s.zero;
      codes[i] = std::uint8_t(std::clamp(q, -half(), half() - 1) + half());
    }
  }

 protected:
  float half() const { return float(1 << (bits_ - 1)); }

 private:
  std::string name_, meaning_;
  int bits_;
  bool grouped_;
  std::vector<float> numbers_;
};

class Asymmetric final : public Integers {
 public:
  using Integers::Integers;
  GroupScale fit(const Extremes& e, DType scales) const override {
    const float low = std::min(e.low, 0.0f), steps = 2 * half() - 1;
    const float scale = usable(stored_scale((std::max(e.high, 0.0f) - low) / steps, scales), e);
    return {scale, scale > 0 ? std::clamp(-half() - std::nearbyint(low / scale), -half(), half() - 1) : 0.0f};
  }
};

}  // namespace

const WeightFormat& int8() {
  static const Integers format("int8", "a scale for each output", 8, false);
  return format;
}
const WeightFormat& int8_group() {
  static const Integers format("int8_group", "groups of 128 inputs, else 64, 32 or 16", 8, true);
  return format;
}
const WeightFormat& int6() {
  static const Integers format("int6", "groups of 128 inputs, else 64, 32 or 16", 6, true);
  return format;
}
const WeightFormat& int5() {
  static const Integers format("int5", "groups of 128 inputs, else 64, 32 or 16", 5, true);
  return format;
}
const WeightFormat& int4() {
  static const Integers format("int4", "groups of 128 inputs, else 64, 32 or 16", 4, true);
  return format;
}
const WeightFormat& int4_asymmetric() {
  static const Asymmetric format("int4_asymmetric", "groups of 128 inputs, else 64, 32 or 16, with zero points", 4,
                                 true);
  return format;
}

}  // namespace foretoken::formats

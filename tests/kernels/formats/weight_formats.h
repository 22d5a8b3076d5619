// What the tests of weight formats share.
#pragma once
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/formats/formats.h"
#include "tests/kernels/scenario.h"

namespace foretoken::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                       kInfinity = std::numeric_limits<float>::infinity();

// Groups of random sizes of numbers, one constant, one of zeros, one far from zero.
inline Tensor weights(std::int64_t in, unsigned seed) {
  const Tensor t = random_tensor({9, in}, seed);
  for (std::int64_t i = 0; i < in; ++i) {
    t.row<float>(1)[i] *= 1e-6f, t.row<float>(2)[i] *= 1e6f;
    t.row<float>(3)[i] = 0.25f, t.row<float>(4)[i] = 0;
    t.row<float>(5)[i] = std::abs(t.row<float>(5)[i]), t.row<float>(6)[i] = -std::abs(t.row<float>(6)[i]);
    t.row<float>(7)[i] = i == 3 ? 5.0f : 1e-3f * t.row<float>(7)[i];  // one outlier
  }
  return t;
}

// The weights of all codes.
inline std::vector<float> weights_of(const WeightFormat& format, GroupScale scale) {
  std::vector<float> all;
  for (const float number : format.numbers()) all.push_back(weight_of(number, scale));
  return all;
}

class Formats : public ::testing::TestWithParam<const WeightFormat*> {
 protected:
  const WeightFormat& format = *GetParam();
};

inline std::string name_of_format(const ::testing::TestParamInfo<const WeightFormat*>& info) {
  return info.param->name();
}

}  // namespace foretoken::testing

// Scales in 8 bits against those of bitsandbytes (tests/data/golden/dynamic_map.safetensors, made by
// tests/golden/quantized_golden.py).
#include "kernels/formats/dynamic_map.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "framework/model/checkpoint.h"
#include "kernels/formats/formats.h"

namespace foretoken::formats {
namespace {

Checkpoint golden() { return Checkpoint::open_file(FORETOKEN_SOURCE_DIR "/tests/data/golden/dynamic_map.safetensors"); }

TEST(DynamicMap, HasTheBitsOfBitsandbytes) {
  const Checkpoint checkpoint = golden();
  const Tensor want = checkpoint.tensor("map", {256});
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(dynamic_map()[i], want.values<float>()[i]) << i;
}

// bitsandbytes' CPU kernel looks the nearest number up in a coarser table, and misses it for one scale in a thousand.
TEST(DynamicMap, RoundsScalesAsBitsandbytesOrNearer) {
  const Checkpoint checkpoint = golden();
  const Tensor scales = checkpoint.tensor("scales"), want = checkpoint.tensor("rounded", scales.shape());
  const float mean = checkpoint.tensor("mean", {1}).values<float>()[0];
  const auto x = scales.values<float>(), theirs = want.values<float>();
  EXPECT_NEAR(mean_of(x) / mean, 1, 1e-6);
  std::vector<float> ours(x.begin(), x.end());
  round_by_dynamic_map(ours, mean);
  std::size_t different = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    different += ours[i] != theirs[i];
    EXPECT_LE(std::abs(ours[i] - x[i]), std::abs(theirs[i] - x[i]) + 1e-8f) << i;
  }
  EXPECT_GT(ours.size(), 4 * kScalesInABlock);
  EXPECT_LE(different, ours.size() / 200);
}

TEST(DynamicMap, LeavesWhatIsNoNumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> scales = {1, kNan, 3};
  EXPECT_EQ(mean_of(scales), 2);
  round_by_dynamic_map(scales, 2);
  EXPECT_TRUE(std::isnan(scales[1]));
  EXPECT_EQ(scales[2], 3);
  EXPECT_NEAR(scales[0], 1, 0.01);
  std::vector<float> equal(300, 0.125f);
  round_by_dynamic_map(equal, mean_of(equal));
  for (const float s : equal) EXPECT_EQ(s, 0.125f);
}

TEST(DynamicMap, IsHowScalesOfNf4AndFp4AreStored) {
  for (const WeightFormat* format : {&nf4(), &fp4()}) {
    std::vector<float> scales = {0.5f, 0.75f, 0.8f, 0.3f}, rounded = scales;
    round_by_dynamic_map(rounded, mean_of(rounded));
    format->round_scales(scales);
    EXPECT_EQ(scales, rounded);
    EXPECT_NE(rounded[2], 0.8f);
  }
}

}  // namespace
}  // namespace foretoken::formats

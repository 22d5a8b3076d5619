// How a config.json scales the rotary embedding: the frequencies that Transformers 5.24 computes
// (modeling_rope_utils.ROPE_INIT_FUNCTIONS), and what is refused.
#include <cmath>

#include "tests/framework/model/config_folder.h"

namespace foretoken::test {
namespace {

class ConfigRope : public ConfigFolder {
 protected:
  // Of heads of 16 numbers.
  ModelConfig rope(const json& rule, int positions = 256) {
    json whole = {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 32}};
    whole.update(rule);
    for (const auto& [key, value] : rule.items())
      if (value == "absent") whole.erase(key);
    return load({{"rope_parameters", whole}, {"max_position_embeddings", positions}});
  }
  static void expect_frequencies(const ModelConfig& m, const std::vector<double>& want) {
    const std::vector<float> own = m.rope_frequencies();
    ASSERT_EQ(own.size(), want.size());
    for (std::size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(double(own[i]) / want[i], 1, 2.4e-7) << i;
  }
};

TEST_F(ConfigRope, OfYarnIsTransformersOwn) {
  ModelConfig m = rope(json::object());
  EXPECT_EQ(m.rope_scaling.kind, RopeScaling::Kind::yarn);
  EXPECT_NEAR(m.rope_scaling.attention_factor, 1.2079441541679836, 1e-12);
  expect_frequencies(m, {1.0, 0.177878112, 0.0125000002, 0.00395284733, 0.00124999997, 0.000395284733, 0.000125000006,
                         3.95284733e-05});
  EXPECT_EQ(m.positions, 256);
  EXPECT_EQ(rope({{"attention_factor", 1.5}}).rope_scaling.attention_factor, 1.5);
  EXPECT_EQ(rope({{"factor", "absent"}}, 128).rope_scaling.factor, 4) << "the ratio of both lengths";
  m = load({{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 32}}},
            {"original_max_position_embeddings", 64}});
  EXPECT_EQ(std::tuple(m.rope_scaling.original_positions, m.rope_scaling.whole), std::tuple(64, true))
      << "the config's own key, as in Transformers";
}

// Two keys, whose ratio is the factor of cosines and sines, and one of which multiplies DeepSeek's scores.
TEST_F(ConfigRope, OfYarnAsDeepSeekHasIt) {
  ModelConfig m =
      rope({{"mscale", 0.7}, {"mscale_all_dim", 1.2}, {"beta_fast", 16}, {"beta_slow", 2}, {"truncate", false}});
  EXPECT_NEAR(m.rope_scaling.attention_factor, 0.9167912505456107, 1e-12);
  expect_frequencies(m, {1.0, 0.0395284705, 0.0125000002, 0.00395284733, 0.00124999997, 0.000395284733, 0.000125000006,
                         3.95284733e-05});
  EXPECT_FALSE(m.rope_scaling.whole);
  EXPECT_EQ(m.rope_scaling.all_dim_scale, 1.2);
  m = rope({{"factor", 40.0}, {"mscale", 1.0}, {"mscale_all_dim", 1.0}, {"original_max_position_embeddings", 128}});
  EXPECT_EQ(m.rope_scaling.attention_factor, 1);
  expect_frequencies(m, {1.0, 0.213453725, 0.0349999964, 0.000790569466, 0.000250000012, 7.90569466e-05, 2.49999994e-05,
                         7.90569447e-06});
  EXPECT_NEAR(yarn_scale(40, 1), 0.1 * std::log(40.0) + 1, 1e-12);
  EXPECT_EQ(yarn_scale(1, 5), 1);
  EXPECT_NEAR(rope({{"mscale", 0.7}, {"mscale_all_dim", 0}}).rope_scaling.attention_factor, 1.2079441541679836, 1e-12)
      << "one of the two alone counts for nothing";
}

// Within max_position_embeddings the frequencies stay, as in Transformers; no sequence is longer.
TEST_F(ConfigRope, OfDynamicScalingStaysWithinThePositions) {
  const ModelConfig plain = load(), m = load({{"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}});
  EXPECT_EQ(m.rope_frequencies(), plain.rope_frequencies());
  EXPECT_EQ(std::tuple(m.positions, m.rope_scaling.attention_factor), std::tuple(plain.positions, 1.));
}

// Of a family whose heads are rotated as a whole: the rule's own original length counts.
TEST_F(ConfigRope, OfLongRopeHasFactorsOfEachLength) {
  const std::vector<double> low(8, 1.0), high(8, 4.0);
  const json rule = {{"rope_type", "longrope"},
                     {"short_factor", low},
                     {"long_factor", high},
                     {"original_max_position_embeddings", 128}};
  const ModelConfig m = load({{"rope_scaling", rule}}), all = m.with_long_factors(), plain = load();
  EXPECT_EQ(std::tuple(m.positions, all.positions), std::tuple(128, 512));
  EXPECT_EQ(m.rope_frequencies(), plain.rope_frequencies());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(all.rope_frequencies()[i], plain.rope_frequencies()[i] / 4);
  EXPECT_NEAR(all.rope_scaling.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(128.0)), 1e-12);
  json short_only = rule;
  short_only.erase("long_factor");
  EXPECT_TRUE(says(sentence_of([&] { (void)load({{"rope_scaling", short_only}}).with_long_factors(); }),
                   "without LongRoPE's long factors"));
}

TEST_F(ConfigRope, WhatIsWrongIsRefusedByKey) {
  const auto refused = [&](const json& rule) { return sentence_of([&] { (void)rope(rule); }); };
  EXPECT_TRUE(says(refused({{"factor", 0.5}}), "'rope_parameters.factor' is 0.5", "at least 1"));
  EXPECT_TRUE(says(refused({{"beta_fast", 1}, {"beta_slow", 2}}), "'rope_parameters.beta_fast' is 1", "beta_slow"));
  EXPECT_TRUE(says(refused({{"rope_theta", 1}}), "'rope_parameters.rope_theta' is 1", "above 1"));
  EXPECT_TRUE(says(refused({{"mscale", -1}}), "'rope_parameters.mscale' is -1"));
  EXPECT_TRUE(says(refused({{"truncate", 3}}), "'rope_parameters.truncate' is 3"));
  EXPECT_TRUE(says(refused({{"mrope_section", {1, 2}}}), "'rope_parameters.mrope_section'", "several axes"));
  EXPECT_TRUE(says(refused({{"rope_type", "proportional"}}), "'rope_parameters.rope_type' is \"proportional\"",
                   "\"yarn\", \"longrope\" and \"dynamic\""));
  EXPECT_TRUE(says(refused({{"rope_type", "longrope"}, {"short_factor", {1, 2}}}), "'rope_parameters.short_factor'",
                   "each frequency"));
}

}  // namespace
}  // namespace foretoken::test

#include "experiments/bench.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "framework/text/json_file.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

TEST(Bench, floor_is_the_larger_of_two_times) {
  const Ceiling ceiling{100e9, 1e12};
  const std::vector<ProductShape> shapes{{"a", 1000, 500, 2}};  // a million weights: 2 MB, 2 MFLOP a row
  EXPECT_NEAR(ceiling.floor(shapes, 1), 20e-6, 1e-12);
  EXPECT_NEAR(ceiling.floor(shapes, 10), 20e-6, 1e-12);
  EXPECT_NEAR(ceiling.floor(shapes, 40), 80e-6, 1e-12);
}

TEST(Bench, demo_shapes_are_those_of_its_config) {
  const std::vector<ProductShape> demo = demo_shapes(), read = shapes_of(ModelConfig::load("experiments/models/target"));
  ASSERT_EQ(read.size(), demo.size());
  for (std::size_t i = 0; i < demo.size(); ++i) {
    EXPECT_EQ(read[i].name, demo[i].name);
    EXPECT_EQ(read[i].out, demo[i].out) << demo[i].name;
    EXPECT_EQ(read[i].in, demo[i].in) << demo[i].name;
    EXPECT_EQ(read[i].layers, demo[i].layers) << demo[i].name;
  }
}

TEST(Bench, prints_every_row_count) {
  ::testing::internal::CaptureStdout();
  BenchOptions options;
  options.json = true, options.repeats = 1, options.threads = 1;
  EXPECT_EQ(run_bench(options), 0);
  const nlohmann::json found = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
  std::vector<int> rows;
  for (const auto& line : found.at("products")) {
    rows.push_back(line.at("rows"));
    EXPECT_GT(line.at("seconds").get<double>(), 0);
    EXPECT_NEAR(line.at("ratio").get<double>(), line.at("seconds").get<double>() / line.at("floor").get<double>(),
                1e-9);
  }
  EXPECT_EQ(rows, (std::vector<int>{1, 2, 4, 5, 8, 16, 32, 64}));
  EXPECT_EQ(found.at("bytes").get<std::int64_t>(), 2 * (8 * (640 + 384 + 2048) * 384 + 8 * 384 * 1024 + 4096 * 384));
}

std::string refusal(const std::string& model_dir) {
  BenchOptions options;
  options.model_dir = model_dir;
  return sentence_of([&] { run_bench(options); });
}

TEST(Bench, a_directory_without_a_model_is_one_sentence) {
  EXPECT_TRUE(says(refusal("no/such/model"), "no/such/model", "config.json"));
  const TemporaryFolder folder;
  EXPECT_TRUE(says(refusal(folder.path()), "config.json"));
  nlohmann::json config = nlohmann::json::parse(read_file("experiments/models/target/config.json"));
  for (const nlohmann::json& heads : {nlohmann::json(0), nlohmann::json(-2), nlohmann::json("six")}) {
    config["num_attention_heads"] = heads;
    folder.write("config.json", config.dump());
    EXPECT_TRUE(says(refusal(folder.path()), "num_attention_heads"));
  }
}

}  // namespace
}  // namespace foretoken::test

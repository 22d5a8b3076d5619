#include "experiments/bench/bench.h"

#include <array>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "framework/text/json_file.h"
#include "kernels/backend.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

TEST(Bench, roofline_is_the_larger_of_two_times) {
  const Ceiling ceiling{100e9, 1e12};
  const std::vector<ProductShape> shapes{{"a", 1000, 500, 2}};  // a million weights: 2 MB, 2 MFLOP a row
  EXPECT_NEAR(ceiling.roofline(shapes, 1), 20e-6, 1e-12);
  EXPECT_NEAR(ceiling.roofline(shapes, 10), 20e-6, 1e-12);
  EXPECT_NEAR(ceiling.roofline(shapes, 40), 80e-6, 1e-12);
}

TEST(Bench, demo_shapes_are_those_of_its_config) {
  const std::vector<ProductShape> demo = demo_shapes(),
                                  read = shapes_of(ModelConfig::load("experiments/models/target"));
  ASSERT_EQ(read.size(), demo.size());
  for (std::size_t i = 0; i < demo.size(); ++i) {
    EXPECT_EQ(read[i].name, demo[i].name);
    EXPECT_EQ(read[i].out, demo[i].out) << demo[i].name;
    EXPECT_EQ(read[i].in, demo[i].in) << demo[i].name;
    EXPECT_EQ(read[i].layers, demo[i].layers) << demo[i].name;
  }
}

TEST(Bench, mixtures_of_experts_are_refused) {
  ModelConfig mixture = ModelConfig::load("experiments/models/target");
  mixture.mixture = MixtureConfig{.experts = 4, .used = 2, .width = 64};
  EXPECT_TRUE(says(sentence_of([&] { shapes_of(mixture); }), "a mixture of experts", "--steps"));
}

nlohmann::json found_by(BenchOptions options) {
  ::testing::internal::CaptureStdout();
  options.json = true, options.repeats = 1, options.threads = 1;
  EXPECT_EQ(run_bench(options), 0);
  return nlohmann::json::parse(::testing::internal::GetCapturedStdout());
}

std::map<std::string, nlohmann::json> bars_of(const nlohmann::json& found) {
  std::map<std::string, nlohmann::json> bars;
  for (const auto& bar : found.at("bars")) bars[bar.at("name")] = bar;
  return bars;
}

TEST(Bench, bars_have_their_figures_and_are_kept) {
  const TemporaryFolder folder;
  BenchOptions options;
  options.results = (folder.path() / "bench.jsonl").string();
  const nlohmann::json found = found_by(options);
  EXPECT_EQ(nlohmann::json::parse(read_file(options.results)), found);
  for (const char* key : {"machine", "commit", "date"}) EXPECT_TRUE(found.contains(key)) << key;
  const std::map<std::string, nlohmann::json> bars = bars_of(found);
  EXPECT_EQ(bars.size(), 10u);
  const double kv = 8 * 2 * 2 * 64 * 2;  // bytes of a cached position: layers, keys and values, heads, numbers, bf16
  const double weights = found.at("bytes");
  EXPECT_GT(bars.at("decode, batch 1").at("bytes"), weights + kv);
  EXPECT_LT(bars.at("decode, batch 1").at("bytes"), weights + 2048 * kv);
  EXPECT_EQ(bars.at("attention to 4096 slots, batch 8").at("bytes"), 8 * 4096 * kv);
  EXPECT_EQ(bars.at("attention to 4096 slots, batch 8").at("operations"), 8.0 * 4096 * 8 * 4 * 6 * 64);
  for (const auto& [name, bar] : bars) {
    EXPECT_GT(bar.at("figure"), 0) << name;
    EXPECT_EQ(bar.at("met"), bar.at("at_most") ? bar.at("figure") <= bar.at("bar") : bar.at("figure") >= bar.at("bar"))
        << name;
  }
}

TEST(Bench, bars_of_the_demo_pair_count_its_work) {
  const std::map<std::string, nlohmann::json> bars = bars_of(found_by({}));
  // The demo pair: 8 layers of these matrices and a head; a prompt of 512 needs the logits of one row.
  const double layers = 8.0 * (640 + 384 + 2048 + 1024) * 384, head = 4096.0 * 384;
  const std::map<std::string, std::array<double, 2>> wanted = {// operations, the bar
                                                               {"decode, batch 1", {2 * (layers + head), 0.5}},
                                                               {"decode, batch 8", {16 * (layers + head), 3.5}},
                                                               {"round of 4 drafts, batch 1", {0, 0.08}},
                                                               {"round of 4 drafts, batch 8", {0, 0.05}},
                                                               {"prompt of 512", {2 * (512 * layers + head), 0.3}}};
  for (const auto& [name, numbers] : wanted) {
    EXPECT_EQ(bars.at(name).at("operations"), numbers[0]) << name;
    EXPECT_EQ(bars.at(name).at("bar"), numbers[1]) << name;
    EXPECT_EQ(bars.at(name).at("at_most"), name.starts_with("round")) << name;
    for (const char* none : {"bytes", "roofline"})
      EXPECT_EQ(bars.at(name).at(none) == 0.0, name.starts_with("round")) << name << ", " << none;
  }
  EXPECT_EQ(bars.at("prompt of 512").at("bytes"), 2 * (layers + head));
  EXPECT_NEAR(bars.at("decode, batch 8").at("figure"),
              8 * bars.at("decode, batch 1").at("seconds").get<double>() /
                  bars.at("decode, batch 8").at("seconds").get<double>(),
              1e-9);
}

TEST(Bench, prints_every_row_count) {
  BenchOptions options;
  options.instructions = cpu_instructions().back();  // bars exist only for the best instructions
  const nlohmann::json found = found_by(options);
  EXPECT_FALSE(found.contains("bars"));
  EXPECT_TRUE(says(found.at("bars_left_out"), "demo pair", "--instructions"));
  EXPECT_EQ(found.at("machine").at("instructions"), options.instructions);
  EXPECT_GT(found.at("fork_seconds"), 0);
  std::vector<int> rows;
  for (const auto& line : found.at("products")) {
    rows.push_back(line.at("rows"));
    EXPECT_GT(line.at("seconds").get<double>(), 0);
    EXPECT_NEAR(line.at("ratio").get<double>(), line.at("seconds").get<double>() / line.at("roofline").get<double>(),
                1e-9);
  }
  EXPECT_EQ(rows, (std::vector<int>{1, 2, 4, 5, 8, 16, 32, 64}));
  EXPECT_EQ(found.at("bytes").get<std::int64_t>(), 2 * (8 * (640 + 384 + 2048) * 384 + 8 * 384 * 1024 + 4096 * 384));
}

TEST(Bench, bars_of_another_model_are_left_out_in_words) {
  BenchOptions options;
  options.model = "experiments/models/draft", options.repeats = 1, options.threads = 1;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_bench(options), 0);
  EXPECT_TRUE(says(::testing::internal::GetCapturedStdout(), "\nthe bars are for the demo pair", "--model"));
}

// Codes of 4 bits, and 32 bits of scale for each 128 inputs.
TEST(Bench, bytes_are_those_of_the_weight_format) {
  BenchOptions options;
  options.model = "experiments/models/draft", options.repeats = 1, options.threads = 1, options.json = true;
  const auto bytes = [&](const std::string& dtype) {
    options.dtype = dtype;
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(run_bench(options), 0);
    const nlohmann::json line = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
    EXPECT_EQ(line["dtype"], dtype);
    return line["bytes"].get<double>();
  };
  EXPECT_EQ(bytes("int4") / bytes("bf16"), (4 + 32.0 / 128) / 16);
  options.dtype = "int3";
  EXPECT_TRUE(says(sentence_of([&] { run_bench(options); }), "unknown dtype 'int3'"));
}

std::string refusal(const std::string& model) {
  BenchOptions options;
  options.model = model;
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

// What rounds of drafters must read, as `bench --steps` counts it: what their forwards read, not what their names say.
#include "experiments/bench/bench_steps.h"

#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// "bytes" of these scenarios.
std::map<std::string, double> bytes_of(const json& scenarios) {
  const TemporaryFolder folder;
  const json engine{{"device", "cpu"}, {"threads", 1}, {"memory_mib", 64}};
  const auto file = folder.write("s.json", json{{"engine", engine}, {"scenarios", scenarios}}.dump());
  const std::string results = (folder.path() / "r.jsonl").string();
  EXPECT_EQ(run_steps({.file = file, .only = "", .device = "", .results = results, .json = true}), 0);
  std::map<std::string, double> bytes;
  std::ifstream in(results);
  for (std::string line; std::getline(in, line);) {
    const json entry = json::parse(line);
    bytes[entry.at("scenario")] = entry.at("bytes");
  }
  return bytes;
}

// "bytes" of scenarios with these drafters and lengths, less those of the target alone.
std::map<std::string, double> read_beside_the_target(const json& drafters) {
  json scenarios = json::array(),
       least{{"target", {{"model", "experiments/models/draft"}, {"kv_dtype", "f32"}}}, {"context", 32}};
  least["steps"] = 3;
  const auto add = [&](const std::string& name, const json& drafter, int length) {
    json s = least;
    s["name"] = name, s["length"] = length;
    if (!drafter.is_null()) s["drafter"] = drafter;
    scenarios.push_back(s);
  };
  add("target", nullptr, 0);
  for (const auto& [name, of] : drafters.items()) add(name, of[0], of[1]);
  std::map<std::string, double> bytes = bytes_of(scenarios);
  for (auto& [name, n] : bytes)
    if (name != "target") n -= bytes.at("target");
  return bytes;
}

TEST(BenchSteps, CountsTheForwardsOfDrafters) {
  const auto head = [](const std::string& name, json more) {
    more["random"] = "small";
    return json{{"name", name}, {"head", more}};
  };
  json block = head("dflash", {{"block", 8}});
  const json chain{{"name", "draft_model"}, {"model", "experiments/models/draft"}};
  auto bytes = read_beside_the_target({{"dflash 2", {block, 2}},
                                       {"dflash 6", {block, 6}},
                                       {"medusa 1", {head("medusa", {{"heads", 3}}), 1}},
                                       {"medusa 3", {head("medusa", {{"heads", 3}}), 3}},
                                       {"hydra 1", {head("hydra", {{"heads", 3}}), 1}},
                                       {"hydra 3", {head("hydra", {{"heads", 3}}), 3}},
                                       {"chain 1", {chain, 1}},
                                       {"chain 3", {chain, 3}}});
  EXPECT_GT(bytes["dflash 2"], 0);
  EXPECT_EQ(bytes["dflash 2"], bytes["dflash 6"]) << "a block is one forward";
  EXPECT_GT(bytes["medusa 1"], 0);
  EXPECT_GT(bytes["medusa 3"], bytes["medusa 1"]);
  EXPECT_GT(bytes["hydra 1"], 0);
  EXPECT_GT(bytes["hydra 3"], 3 * bytes["hydra 1"]) << "later heads read more tokens";
  EXPECT_EQ(bytes["chain 1"], bytes["target"]) << "the draft is the target";
  EXPECT_EQ(bytes["chain 3"], 3 * bytes["chain 1"]);
}

// The context is 32 tokens, in pages of 16.
TEST(BenchSteps, CountsThePagesThatAViewReads) {
  const json window{{"name", "window"}, {"sinks", 0}};
  auto some = window, all = window;
  some["window"] = 1, all["window"] = 64;
  auto bytes = read_beside_the_target({{"some", {some, 1}}, {"all", {all, 1}}, {"all 3", {all, 3}}});
  EXPECT_EQ(bytes["all"], bytes["target"]) << "the draft is the target";
  EXPECT_EQ(bytes["all 3"], 3 * bytes["all"]);
  const double row = 2 * 2 * 2 * 32 * 4;  // layers, keys and values, heads, numbers, f32
  EXPECT_GE(bytes["all"] - bytes["some"], 32 * row) << "two pages";
  EXPECT_LE(bytes["all"] - bytes["some"], 48 * row) << "three, once steps have filled another";
}

// Two of the three layers have a window of 9 positions.
TEST(BenchSteps, CountsTheWindowsOfLayers) {
  const std::string gemma = FORETOKEN_SOURCE_DIR "/tests/data/models/gemma2";
  json scenarios = json::array();
  for (const int context : {4, 32, 64})
    scenarios.push_back({{"name", std::to_string(context)},
                         {"target", {{"model", {{"random", gemma}}}, {"kv_dtype", "f32"}}},
                         {"context", context},
                         {"steps", 3}});
  auto bytes = bytes_of(scenarios);
  const double row = 2 * 2 * 16 * 4;  // of a layer: keys and values, heads, numbers, f32
  EXPECT_EQ(bytes["64"] - bytes["32"], 32 * row);
  EXPECT_EQ(bytes["32"] - bytes["4"], (28 + 2 * (9 - 4)) * row);
}

}  // namespace
}  // namespace foretoken::test

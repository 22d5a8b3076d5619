// Shards: every run once, about equally long, runs of one baseline together; GPUs of processes by number.
#include "experiments/sweep/shards.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

class Shards : public testing::Test {
 protected:
  Shards() {
    register_drafters(registries);
    register_verifiers(registries);
  }
  std::vector<foretoken::Run> sweep(const std::string& axes) const {
    return expand(ordered_json::parse(R"({"base": {"target": {"model": "m"}, "workload": {"prompts": "p"}}, "axes": )" +
                                      axes + "}"),
                  {}, registries, "doc");
  }
  static std::vector<std::vector<foretoken::Run>> divided(const std::vector<foretoken::Run>& runs, int count,
                                                          bool share = false) {
    std::vector<std::vector<foretoken::Run>> shards;
    for (int k = 1; k <= count; ++k) shards.push_back(runs_of({k, count}, runs, share));
    return shards;
  }
  static double cost(const std::vector<foretoken::Run>& runs) {
    return std::accumulate(runs.begin(), runs.end(), 0.0,
                           [](double sum, const foretoken::Run& r) { return sum + rounds_of(r.document); });
  }
  Registries registries;
};

TEST_F(Shards, TogetherHaveEveryRunOnceInTheOrderOfTheSweep) {
  const auto runs = sweep(R"({"/engine/batch": [1, 4], "/policy/length": [1, 2, 4, 8], "/sampling/seed": [1, 2, 3]})");
  for (const int count : {1, 2, 5, 24, 30}) {
    std::map<std::string, int> times;
    for (const auto& shard : divided(runs, count)) {
      std::size_t last = 0;
      for (const foretoken::Run& run : shard) {
        ++times[run.key];
        const auto at = std::size_t(std::ranges::find(runs, run.key, &foretoken::Run::key) - runs.begin());
        EXPECT_GE(at, last);
        last = at;
      }
    }
    EXPECT_EQ(times.size(), runs.size());
    EXPECT_TRUE(std::ranges::all_of(times, [](const auto& t) { return t.second == 1; }));
  }
}

TEST_F(Shards, OfRunsThatCostTheSameTakeEveryNthInTheOrderOfKeys) {
  const auto runs = sweep(R"({"/policy/length": [1, 2, 4, 8], "/sampling/seed": [1, 2, 3]})");
  std::vector<std::string> keys;
  for (const foretoken::Run& run : runs) keys.push_back(run.key);
  std::ranges::sort(keys);
  const auto shards = divided(runs, 5);
  for (std::size_t k = 0; k < 5; ++k) {
    std::set<std::string> wanted, found;
    for (std::size_t i = k; i < keys.size(); i += 5) wanted.insert(keys[i]);
    for (const foretoken::Run& run : shards[k]) found.insert(run.key);
    EXPECT_EQ(found, wanted);
  }
}

TEST_F(Shards, AreAboutEquallyLong) {
  const auto runs = sweep(R"({"/workload/max_new_tokens": [16, 32, 64, 256], "/sampling/samples": [1, 4],
                              "/sampling/seed": [1, 2, 3]})");
  std::vector<double> costs;
  for (const auto& shard : divided(runs, 3)) costs.push_back(cost(shard));
  EXPECT_LT(std::ranges::max(costs), 1.05 * std::ranges::min(costs));
}

TEST_F(Shards, RunsCostTheirRoundsOfPlainDecoding) {
  const auto rounds = [&](const std::string& axes) { return rounds_of(sweep(axes).front().document); };
  const std::string few = R"("/workload/max_new_tokens": [10], "/measure/repeats": [3])";
  EXPECT_EQ(rounds("{" + few + R"(, "/workload/limit": [24], "/engine/batch": [2]})"), 24. / 2 * 10 * 3);
  EXPECT_EQ(rounds("{" + few + R"(, "/workload/limit": [6], "/engine/batch": [4]})"), 6 * 10 * 3) << "six a place";
  EXPECT_EQ(rounds("{" + few + R"(, "/workload/limit": [12], "/engine/batch": [1], "/sampling/samples": [2]})"),
            12 * 2 * 10 * 3);
  for (const char* turns : {"3", "0"})
    EXPECT_EQ(
        rounds("{" + few + R"(, "/workload/limit": [24], "/engine/batch": [2], "/workload/turns": [)" + turns + "]}"),
        3 * 24. / 2 * 10 * 3)
        << "all turns count as three";
}

TEST_F(Shards, AConversationWeighsAsMuchAsItsTurns) {
  const auto runs = sweep(R"({"/workload/turns": [1, 3], "/sampling/seed": [1, 2, 3]})");
  std::multiset<std::vector<int>> found;
  for (const auto& shard : divided(runs, 4)) {
    std::vector<int> turns;
    for (const foretoken::Run& run : shard) turns.push_back(run.document["workload"]["turns"]);
    found.insert(turns);
  }
  EXPECT_EQ(found, (std::multiset<std::vector<int>>{{1, 1, 1}, {3}, {3}, {3}}));
}

TEST_F(Shards, KeepRunsOfOneBaselineTogether) {
  const auto runs = sweep(R"({"/engine/batch": [1, 2, 4], "/policy/length": [1, 2, 4, 8]})");
  for (const int count : {2, 3, 4}) {
    std::map<int, std::set<int>> shards_of_batch;
    const auto shards = divided(runs, count, true);
    for (int k = 0; k < count; ++k)
      for (const foretoken::Run& run : shards[std::size_t(k)])
        shards_of_batch[run.document["engine"]["batch"]].insert(k);
    for (const auto& [batch, found] : shards_of_batch) EXPECT_EQ(found.size(), 1u) << batch;
  }
  std::size_t mixed = 0;
  for (const auto& shard : divided(runs, 3)) {
    std::set<int> batches;
    for (const foretoken::Run& run : shard) batches.insert(run.document["engine"]["batch"].get<int>());
    mixed += batches.size() > 1;
  }
  EXPECT_GT(mixed, 0u) << "otherwise they need not";
}

TEST_F(Shards, HaveNumbersAndFiles) {
  EXPECT_EQ(read_shard("8/8").number, 8);
  EXPECT_EQ(read_shard("2/8").count, 8);
  for (const char* bad :
       {"", "2", "/8", "2/", "0/8", "9/8", "-1/8", "2/8 ", "2/8/9", "a/b", "1/20001", "1/99999999999"})
    EXPECT_TRUE(says(sentence_of([&] { read_shard(bad); }), "--shard wants K/N", "--shard 2/8")) << bad;
  EXPECT_EQ(file_of({2, 8}, "results/a.b.jsonl"), "results/a.b.shard-2-of-8.jsonl");
}

TEST(Gpus, CountWithinTheVisibleOnes) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(visible_gpus({"1", "GPU-ab"}, nullptr), (Names{"1", "GPU-ab"}));
  EXPECT_EQ(visible_gpus({"1", "0"}, "6,GPU-cd"), (Names{"GPU-cd", "6"}));
  EXPECT_TRUE(
      says(sentence_of([] { visible_gpus({"0", "2"}, "6,7"); }), "GPU 2", "CUDA_VISIBLE_DEVICES=6,7", "below 2"));
  EXPECT_TRUE(says(sentence_of([] { visible_gpus({"0"}, ""); }), "below 0"));
  for (const Names& twice : {Names{"0", "0"}, Names{"0", "1"}})
    EXPECT_TRUE(says(sentence_of([&] { visible_gpus(twice, "6,6"); }), "different GPUs", "name each once"));
}

}  // namespace
}  // namespace foretoken::test

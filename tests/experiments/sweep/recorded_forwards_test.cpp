// Runs on a device that records forwards: all of it happens before anything counts.
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/sweep/alternation.h"
#include "experiments/sweep/run_document.h"
#include "experiments/sweep/runner.h"
#include "kernels/reference/reference_backend.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// Knows a forward by its rows, block tables, width of these and wanted rows: sizes, not addresses of one engine.
class Recorder final : public ReferenceBackend {
 public:
  struct Counts {
    int bodies = 0, recorded = 0, unrecorded = 0;
  };

  void replay(std::span<const std::int64_t> key, const std::function<void()>& body, const Tensor&) override {
    body();
    const bool known = known_.contains(sizes(key));
    Counts& now = periods.back();
    ++now.bodies, now.recorded += !known && records_, now.unrecorded += !known && !records_;
    recordings_ += !known && records_, unrecorded_ += !known && !records_;
    if (records_) known_.insert(sizes(key));
  }
  bool records() const override { return true; }
  void record_new(bool on) override {
    if (on != records_) periods.emplace_back();
    records_ = on;
  }
  std::uint64_t recordings() const override { return recordings_; }
  std::uint64_t unrecorded() const override { return unrecorded_; }
  void forget() { known_.clear(); }  // as a device does that keeps few recordings

  std::vector<Counts> periods{1};  // while it records, then while it does not, and so on

 private:
  static std::vector<std::int64_t> sizes(std::span<const std::int64_t> key) {
    return {key.begin() + 6, key.begin() + 11};
  }
  std::set<std::vector<std::int64_t>> known_;
  bool records_ = true;
  std::uint64_t recordings_ = 0, unrecorded_ = 0;
};

class RecordedForwards : public testing::Test {
 protected:
  RecordedForwards() {
    folder_.write("config.json", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 4096, "hidden_size": 16,
        "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 8, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "rope_theta": 10000.0})");
  }
  json run(const json& changes) const {
    const json random = {{"random", folder_.path().string()}, {"seed", 5}};
    json document = {{"target", {{"model", random}, {"dtype", "f32"}, {"kv_dtype", "f32"}}},
                     {"drafter", {{"name", "draft_model"}, {"model", random}, {"dtype", "f32"}}},
                     {"policy", {{"length", 2}}},
                     {"engine", {{"batch", 2}, {"device", "reference"}}},
                     {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", 12}, {"max_new_tokens", 8}}},
                     {"measure", {{"repeats", 2}}}};
    document.merge_patch(changes);
    return document;
  }
  // The result line of a run on that device.
  json line(const json& changes) {
    Workbench bench;
    const json document = complete_run(run(changes), bench.registries(), "test");
    auto device = std::make_unique<Recorder>();
    recorder = device.get();
    bench.put_backend(document["engine"], std::move(device));
    json found = measure_run({document, json::object(), key_of(document)}, bench, "", [](double) {});
    EXPECT_FALSE(found.contains("error")) << found["error"];
    periods = recorder->periods;
    return found;
  }
  static long sum(const json& line, const char* key) {
    long all = 0;
    for (const json& repeat : line["repeats"])
      for (const char* side : {"baseline", "speculative"}) all += repeat[side][key].get<long>();
    return all;
  }

  TemporaryFolder folder_;
  Recorder* recorder = nullptr;
  std::vector<Recorder::Counts> periods;
};

TEST_F(RecordedForwards, AreRecordedBeforeAnythingCounts) {
  const json found = line(json::object());
  ASSERT_EQ(periods.size(), 9u) << "two sides of two alternations, and what is before and after each";
  for (std::size_t i = 0; i < periods.size(); ++i) {
    EXPECT_EQ(periods[i].bodies > 0, i % 2 == 1 || i == 0 || i == 4) << i;
    EXPECT_EQ(periods[i].recorded > 0, i == 0) << i << ": the first pass of all requests meets every size";
    EXPECT_EQ(periods[i].unrecorded, 0) << i;
  }
  EXPECT_GT(periods[0].bodies, periods[1].bodies + periods[3].bodies) << "all requests of both sides, and the warm-up";
  EXPECT_EQ(sum(found, "recorded"), 0);
  EXPECT_EQ(sum(found, "unrecorded"), 0);
  EXPECT_TRUE(found["thrown_away"].empty());
}

TEST_F(RecordedForwards, AreRecordedOnTheWayWithoutAWarmUp) {
  const json found = line({{"measure", {{"warmup", false}}}});
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_GT(sum(found, "recorded"), 0);
  EXPECT_EQ(sum(found, "unrecorded"), 0);
  EXPECT_TRUE(found["thrown_away"].empty());
}

TEST_F(RecordedForwards, OfABaselineAreMetOnceForAllRunsThatHaveIt) {
  Workbench bench;
  auto bodies = [&, device = static_cast<Recorder*>(nullptr)](int length) mutable {
    const json document = complete_run(run({{"policy", {{"length", length}}}}), bench.registries(), "test");
    if (device == nullptr) {
      auto made = std::make_unique<Recorder>();
      device = made.get();
      bench.put_backend(document["engine"], std::move(made));
    }
    const int before = device->periods[0].bodies;
    (void)prepare({document, json::object(), key_of(document)}, bench, "");
    return device->periods[0].bodies - before;
  };
  const int both = bodies(2), again = bodies(2);
  EXPECT_GT(both, again) << "the baseline is left out";
  EXPECT_GT(again, 0) << "speculation is not";
  EXPECT_GT(bodies(1), 0);
}

// Where the device keeps too few, those that the warm-up of an alternation does not meet run as they are.
TEST_F(RecordedForwards, AreCountedWhereTheDeviceHasForgottenThem) {
  Workbench bench;
  const json document = complete_run(run(json::object()), bench.registries(), "test");
  auto device = std::make_unique<Recorder>();
  Recorder& forgetful = *device;
  bench.put_backend(document["engine"], std::move(device));
  const foretoken::Run all{document, json::object(), key_of(document)};
  const Prepared prepared = prepare(all, bench, "");
  const auto counted = [&] {
    const json found = measure_alternation(all, 0, prepared, bench, "", [](double) {}, nullptr);
    std::pair<long, long> counts;  // forwards without a recording, steps whose times are kept
    for (const char* side : {"baseline", "speculative"}) {
      const json& m = found[side]["measure"];
      EXPECT_EQ(m["recorded"], 0) << side;
      counts.first += m["unrecorded"].get<long>();
      for (const json& s : m["steps_of_rows"]) counts.second += s["steps"].get<long>();
    }
    return counts;
  };
  const auto [none, steps] = counted();
  EXPECT_EQ(none, 0);
  EXPECT_GT(steps, 0);
  forgetful.forget();
  const auto [unrecorded, same] = counted();
  EXPECT_GT(unrecorded, 0);
  EXPECT_EQ(same, steps) << "steps without a recording count as others do";
}

}  // namespace
}  // namespace foretoken::test

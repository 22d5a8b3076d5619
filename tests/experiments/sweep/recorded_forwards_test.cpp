// Runs on a device that records forwards: all of it happens before anything counts.
#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "drafters/drafters.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/alternation.h"
#include "experiments/sweep/arrivals.h"
#include "experiments/sweep/runner.h"
#include "kernels/reference/reference_backend.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/states.h"
#include "verifiers/verifiers.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// Knows a forward by its sizes, not by addresses of one engine.
class Recorder final : public ReferenceBackend {
 public:
  struct Counts {
    int bodies = 0, recorded = 0, unrecorded = 0;
  };

  void replay(std::span<const std::int64_t> key, const std::function<void()>& body, const Tensor&) override {
    body();
    if (!graphs) return void(++periods.back().bodies);
    if (const std::int64_t wanted = key[kWanted]; moves && wanted > most_wanted_) known_.clear(), most_wanted_ = wanted;
    const bool known = std::ranges::find(known_, sizes(key)) != known_.end();
    Counts& now = periods.back();
    ++now.bodies, now.recorded += !known && records_, now.unrecorded += !known && !records_;
    recorded_late |= !known && records_ && std::filesystem::exists(file);
    recordings_ += !known && records_, unrecorded_ += !known && !records_;
    if (known || !records_) return;
    known_.push_back(sizes(key));
    if (known_.size() > most) known_.pop_front();
  }
  bool records() const override { return graphs; }
  void record_new(bool on) override {
    if (on != records_) periods.emplace_back();
    records_ = on;
  }
  std::uint64_t recordings() const override { return recordings_; }
  std::uint64_t unrecorded() const override { return unrecorded_; }
  void forget() { known_.clear(); }

  std::vector<Counts> periods{1};  // while it records, then while it does not, and so on
  std::size_t most = 10000;        // sizes that it keeps
  bool graphs = true;
  bool moves = false;  // the memory that forwards use, when one wants more rows of logits than any before
  std::filesystem::path file;
  bool recorded_late = false;  // when that file was there

 private:
  static constexpr std::size_t kSizes = 6, kWanted = 10;  // of a key: where sizes begin, rows of logits
  static std::vector<std::int64_t> sizes(std::span<const std::int64_t> k) { return {k.begin() + kSizes, k.end()}; }
  std::deque<std::vector<std::int64_t>> known_;
  std::int64_t most_wanted_ = 0;
  bool records_ = true;
  std::uint64_t recordings_ = 0, unrecorded_ = 0;
};

// Proposes nothing until it has served a run once.
class Late final : public Drafter {
 public:
  explicit Late(Backend& backend) : backend_(backend) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size() && served_ >= kRequests; ++i)
      for (int left = requests[i].budget.chain(); left > 0; --left)
        trees[i].guess(trees[i].nodes - 1, requests[i].sequence->tokens.back());
    return trees;
  }
  void forget(const Sequence&) override { ++served_; }

  static constexpr int kRequests = 12;

 private:
  Backend& backend_;
  int served_ = 0;
};

Registries with_late() {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  registries.drafters.add(
      "late", entry_that<Drafter>(states(Needs{.proposes = {Drawn::certain}, .learns = true}),
                                  [](const json&, Host& host) { return std::make_unique<Late>(host.backend()); }));
  return registries;
}

class RecordedForwards : public testing::Test {
 protected:
  RecordedForwards() {
    folder_.write("config.json", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 4096, "hidden_size": 16,
        "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 8, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "rope_theta": 10000.0})");
  }
  json run(const json& changes) const {
    const json random = {{"random", folder_.path().string()}, {"seed", 5}};
    json document = {
        {"target", {{"model", random}, {"dtype", "f32"}, {"kv_dtype", "f32"}}},
        {"drafter", {{"name", "draft_model"}, {"model", random}, {"dtype", "f32"}}},
        {"policy", {{"length", 2}}},
        {"engine", {{"batch", 2}, {"device", "reference"}}},
        {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", Late::kRequests}, {"max_new_tokens", 8}}},
        {"measure", {{"repeats", 2}}}};
    document.merge_patch(changes);
    return document;
  }
  std::filesystem::path trace() const { return folder_.path() / "trace.jsonl"; }
  // The result line of a run on that device.
  json line(const json& changes) {
    Workbench bench(with_late());
    const json document = complete_run(run(changes), bench.registries(), "test");
    auto device = std::make_unique<Recorder>();
    recorder = device.get();
    recorder->file = trace(), recorder->moves = moves;
    bench.put_backend(document["engine"], std::move(device));
    json found = to_json(measure_run({document, json::object(), key_of(document)}, bench, "", [](double) {}));
    EXPECT_FALSE(found.contains("error")) << found["error"];
    periods = recorder->periods;
    recorded_late = recorder->recorded_late;
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
  bool moves = false;  // of the next one
  std::vector<Recorder::Counts> periods;
  bool recorded_late = false;
};

// The few requests before an alternation meet sizes of their own, which must not make it serve all again.
TEST_F(RecordedForwards, AreRecordedBeforeAnythingCounts) {
  const json found = line({{"engine", {{"batch", 4}}}, {"workload", {{"limit", 24}, {"max_new_tokens", 32}}}});
  ASSERT_EQ(periods.size(), 9u) << "two sides of two alternations, and what is before and after each";
  for (std::size_t i = 0; i < periods.size(); ++i) {
    EXPECT_EQ(periods[i].bodies > 0, i % 2 == 1 || i == 0 || i == 4) << i;
    EXPECT_EQ(periods[i].recorded > 0, i == 0) << i << ": the first pass of all requests meets every size";
    EXPECT_EQ(periods[i].unrecorded, 0) << i;
  }
  const int few = periods[4].bodies, all = periods[1].bodies + periods[3].bodies;
  EXPECT_LT(2 * few, all);
  EXPECT_EQ(periods[0].bodies, few + all + few) << "of both sides";
  EXPECT_EQ(sum(found, "recorded"), 0);
  EXPECT_EQ(sum(found, "unrecorded"), 0);
  EXPECT_TRUE(found["thrown_away"].empty());
}

TEST_F(RecordedForwards, OfTheBaselineAreRecordedWhereSpeculationHasMovedMemory) {
  moves = true;
  const json other = {
      {"engine", {{"batch", 1}}}, {"policy", {{"length", 8}}}, {"workload", {{"limit", 24}, {"max_new_tokens", 40}}}};
  EXPECT_EQ(sum(line(other), "unrecorded"), 0);
}

TEST_F(RecordedForwards, OfAWarmStateAreMetByRequestsBeforeIt) {
  const json found = line(
      {{"drafter", {{"name", "late"}, {"model", nullptr}, {"dtype", nullptr}}}, {"workload", {{"start", "warm"}}}});
  EXPECT_GT(sum(found, "drafted"), 0);
  EXPECT_EQ(sum(found, "recorded"), 0);
  EXPECT_EQ(sum(found, "unrecorded"), 0);
}

// In a closed loop they have other numbers of sequences. Shown by the time, which is at least that of the arrivals.
TEST_F(RecordedForwards, OfAnOpenLoopAreMetAtItsRate) {
  const json found = line({{"workload", {{"rate", 20}}}, {"measure", {{"repeats", 1}}}});
  double unmeasured = found["seconds"];
  for (const char* side : {"baseline", "speculative"}) unmeasured -= found["repeats"][0][side]["seconds"].get<double>();
  const std::chrono::duration<double> last = loop_of(found["run"], Late::kRequests, 0).arrival(Late::kRequests - 1);
  EXPECT_GT(unmeasured, 2 * last.count());
  EXPECT_EQ(sum(found, "recorded"), 0);
}

TEST_F(RecordedForwards, OfATraceAreRecordedBeforeIt) {
  for (const bool warmup : {true, false}) {
    line({{"trace", trace().string()}, {"measure", {{"warmup", warmup}}}});
    EXPECT_EQ(recorded_late, !warmup);
    EXPECT_TRUE(std::filesystem::remove(trace()));
  }
}

TEST_F(RecordedForwards, AreRecordedOnTheWayWithoutAWarmUp) {
  const json found = line({{"measure", {{"warmup", false}}}});
  ASSERT_EQ(periods.size(), 1u);
  EXPECT_GT(sum(found, "recorded"), 0);
  EXPECT_EQ(sum(found, "unrecorded"), 0);
  EXPECT_TRUE(found["thrown_away"].empty());
}

// Runs beside each other, on a device of their own.
class OnOneDevice : public RecordedForwards {
 protected:
  OnOneDevice() {
    const json document = complete_run(run(json::object()), bench.registries(), "test");
    auto made = std::make_unique<Recorder>();
    device = made.get();
    bench.put_backend(document["engine"], std::move(made));
  }
  struct Found {
    int warm_up = 0, recorded = 0;      // forwards before anything counts, and those of them that were recorded
    int baseline = 0, speculative = 0;  // forwards that count
    long unrecorded = 0, steps = 0;     // of both sides: forwards without a recording, steps whose times are kept
  };
  // `key`: of the run; empty: its own.
  Found measure(int length, int alternation, Baselines* shared = nullptr, const std::string& key = "") {
    const json document = complete_run(run({{"policy", {{"length", length}}}}), bench.registries(), "test");
    const foretoken::Run one{document, json::object(), key.empty() ? key_of(document) : key};
    device->periods = {{}};
    const MeasuredAlternation measured =
        measure_alternation(one, alternation, prepare(one, bench, ""), bench, "", [](double) {}, shared);
    const auto& periods = device->periods;
    Found found{periods.at(0).bodies, periods[0].recorded};
    if (!shared) found.baseline = periods.at(alternation % 2 == 0 ? 1 : 3).bodies;
    if (!shared) found.speculative = periods.at(alternation % 2 == 0 ? 3 : 1).bodies;
    for (const MeasuredSide* side : {&measured.baseline, &measured.speculative}) {
      EXPECT_EQ(side->record.recorded, 0);
      found.unrecorded += *side->record.unrecorded;
      for (const StepsOfRows& s : side->record.steps_of_rows) found.steps += s.steps;
    }
    return found;
  }

  Workbench bench;
  Recorder* device = nullptr;
};

TEST_F(OnOneDevice, a_baseline_is_served_whole_once_for_all_runs_that_have_it) {
  const Found first = measure(2, 0), again = measure(2, 1), other = measure(1, 0), its_own = measure(1, 1);
  EXPECT_EQ(again.recorded, 0) << "a few requests, whose sizes it has met";
  EXPECT_EQ(first.warm_up, again.warm_up + first.baseline + first.speculative + again.warm_up);
  EXPECT_GT(other.recorded, 0);
  EXPECT_EQ(other.warm_up, its_own.warm_up + other.speculative + its_own.warm_up);
}

TEST_F(OnOneDevice, speculation_is_served_whole_once_for_each_run) {
  const Found first = measure(2, 0), again = measure(2, 1), other = measure(2, 0, nullptr, "of another run");
  EXPECT_EQ(other.recorded, 0) << "even where the device has met the few";
  EXPECT_EQ(other.warm_up, again.warm_up + first.speculative);
}

TEST_F(OnOneDevice, few_requests_are_enough_where_nothing_is_recorded) {
  device->graphs = false;
  const Found first = measure(2, 0);
  EXPECT_GT(first.warm_up, 0);
  EXPECT_EQ(measure(2, 1).warm_up, first.warm_up);
}

TEST_F(OnOneDevice, a_shared_baseline_that_is_known_is_not_served) {
  Baselines shared;
  const Found first = measure(2, 0, &shared), other = measure(2, 0, &shared);
  EXPECT_GT(first.warm_up, other.warm_up);
  shared.clear();
  EXPECT_GT(measure(2, 1, &shared).warm_up, other.warm_up);
}

// As where a sweep loads models in turns, or has more sizes than the device keeps.
TEST_F(OnOneDevice, what_it_keeps_no_more_is_recorded_again_by_all_requests) {
  const Found first = measure(2, 0);
  device->forget();
  const Found again = measure(2, 1);
  EXPECT_EQ(again.recorded, first.recorded) << "all sizes of both sides";
  EXPECT_EQ(again.unrecorded, 0);
}

TEST_F(OnOneDevice, what_speculation_makes_useless_is_recorded_again) {
  device->moves = true;
  EXPECT_EQ(measure(2, 0).unrecorded, 0);
  EXPECT_EQ(measure(8, 0).unrecorded, 0) << "of the baseline that the run before had as well";
}

TEST_F(OnOneDevice, forwards_that_it_cannot_keep_are_counted_and_their_steps_count) {
  const Found all = measure(2, 0), again = measure(2, 1);
  device->forget();
  device->most = 3;
  const Found few = measure(2, 1);
  EXPECT_EQ(few.warm_up, 2 * (again.warm_up + all.baseline + all.speculative)) << "both sides twice, and no more";
  EXPECT_EQ(all.unrecorded, 0);
  EXPECT_GT(few.unrecorded, 0);
  EXPECT_GT(all.steps, 0);
  EXPECT_EQ(few.steps, all.steps);
}

}  // namespace
}  // namespace foretoken::test

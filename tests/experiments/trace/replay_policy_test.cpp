// Length policies in replays: they are told what an engine tells them.
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "tests/experiments/trace/traced_run.h"

namespace foretoken::test {
namespace {

class PolicyReplays : public testing::Test, public TracedRuns {};

// A policy whose budgets depend on all that it is told, and which writes that down.
class Watching final : public LengthPolicy {
 public:
  Watching(Budget most, json& told) : most_(most), told_(told) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (const PastOnly& p : past) {
      const int state = p.length + p.rounds + 3 * p.drafted + 5 * p.accepted + int(7 * p.acceptance) + seen_;
      all.push_back({2 + state % (most_.nodes - 1), state % (most_.depth + 1)});
      told_.push_back({p.length, p.batch, p.rounds, p.drafted, p.accepted, p.acceptance, p.room.nodes, p.room.depth});
    }
    return all;
  }
  void observe(const StepReport& report) override {
    for (const SequenceReport& r : report.sequences) {
      json levels = json::array();
      for (const TestedLevel& l : r.levels) levels.push_back({l.children, l.accepted});
      seen_ = 11 * r.depth + 13 * r.rejected + int(r.levels.size());
      told_.push_back({r.drafted, r.depth, r.accepted, r.rejected, r.emitted, levels, report.rows - r.prompt_rows});
    }
  }
  void forget(const Sequence&) override { seen_ = 0, told_.push_back("forgotten"); }

 private:
  Budget most_;
  json& told_;
  int seen_ = 0;
};

// A policy gets from a replay what it gets from an engine, in every round: also where trees are ragged, and where
// nothing was drafted.
TEST_F(PolicyReplays, TellAPolicyWhatAnEngineTellsIt) {
  const json shape = json::parse("[[0], [1], [2], [0, 0], [1, 0], [1, 1], [1, 0, 0], [1, 0, 0, 0]]");
  const json tree = {{"name", "draft_tree"}, {"model", "experiments/models/draft"}, {"shape", shape}};
  const json copies = {{"categories", {"copy"}}};
  json told;
  const auto with_policy = [&](Budget most) {
    Registries registries = bench.registries();
    registries.policies.add("watching",
                            {"",
                             "",
                             {},
                             [&told, most](const json&, Host&) { return std::make_unique<Watching>(most, told); },
                             [most](const json&, const ModelInfo&) { return most; }});
    return registries;
  };
  for (const auto& [changes, most, verifier] :
       {std::tuple{json{{"drafter", tree}, {"policy", {{"length", 4}, {"nodes", 9}}}}, Budget{9, 4},
                   "speculative_sampling"},
        {json{{"drafter", tree}, {"policy", {{"length", 4}, {"nodes", 9}}}}, Budget{9, 4}, "block_verification"},
        {json{{"drafter", {{"name", "ngram"}}}, {"workload", copies}}, Budget{9, 8}, "speculative_sampling"}}) {
    const Trace trace = traced(changes);
    const CostTable costs(trace);
    const Registries registries = with_policy(most);
    json run = changes;
    run["policy"] = {{"name", "watching"}}, run["verifier"] = {{"name", verifier}};
    told = json::array();
    const auto real = tokens_and_rounds(measured(run, registries));
    const json by_engine = std::exchange(told, json::array());
    const Replayed row = Replay(trace, costs, registries).policy({{"name", "watching"}}, verifier);
    EXPECT_EQ(row.basis, Basis::exact);
    EXPECT_EQ(std::pair(row.tokens, row.rounds), real) << verifier;
    EXPECT_LT(row.rounds, row.tokens) << "drafts were accepted";
    ASSERT_EQ(told.size(), by_engine.size());
    for (std::size_t i = 0; i < told.size(); ++i) ASSERT_EQ(told[i], by_engine[i]) << verifier << ", entry " << i;
  }
}

// What the draft thinks of tokens that it did not draw is not in a trace.
TEST_F(PolicyReplays, OfPoliciesThatEndDraftsByConfidenceAreRefused) {
  const Trace trace = traced(json::object());
  const CostTable costs(trace);
  Registries registries = bench.registries();
  class Confident final : public LengthPolicy {
    std::vector<Budget> budgets(std::span<const PastOnly> past) override {
      return std::vector<Budget>(past.size(), Budget{3, 2, 0.5F});
    }
  };
  registries.policies.add("confident", {"",
                                        "",
                                        {},
                                        [](const json&, Host&) { return std::make_unique<Confident>(); },
                                        [](const json&, const ModelInfo&) { return Budget{3, 2, 0.5F}; }});
  const Replay replay(trace, costs, registries);
  EXPECT_TRUE(says(sentence_of([&] { replay.policy({{"name", "confident"}}, "speculative_sampling"); }), "confidence"));
}

}  // namespace
}  // namespace foretoken::test

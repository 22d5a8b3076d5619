// Replays of dense traces beside what the engine really does with the same requests.
#include "experiments/trace/replay.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "tests/experiments/trace/traced_run.h"

namespace foretoken::test {
namespace {

const json kTree = {
    {"name", "draft_tree"}, {"model", "experiments/models/draft"}, {"shape", {3, 2, 1, 1}}, {"cut", true}};
const json kTreePolicy = {{"length", 4}, {"nodes", 22}};

class Replays : public testing::Test, public TracedRuns {
 protected:
  // Whether the replay of each length is the run of that length, to the last digit.
  void expect_exact(const json& changes, const std::vector<int>& lengths, const std::string& verifier) {
    expect_exact(traced(changes), changes, lengths, verifier);
  }
  void expect_exact(const Trace& trace, const json& changes, const std::vector<int>& lengths,
                    const std::string& verifier) {
    const CostTable costs(trace);
    const Replay replay(trace, costs, bench.registries());
    for (const int length : lengths) {
      json shorter = changes;
      shorter["policy"]["length"] = length;
      const auto [tokens, rounds] = tokens_and_rounds(measured(shorter));
      const Replayed row = replay.cut("length", {.depth = length}, verifier);
      EXPECT_EQ(row.basis, Basis::exact);
      EXPECT_EQ(row.tokens, tokens) << verifier << ", length " << length;
      EXPECT_EQ(row.rounds, rounds) << verifier << ", length " << length;
      EXPECT_EQ(row.tau.value, tokens / rounds);
      EXPECT_LT(row.rounds, row.tokens) << "drafts were accepted";
    }
  }
};

TEST_F(Replays, OfADraftModelAreTheRunsAtTemperatureZero) {
  expect_exact(json::object(), {1, 2, 4, 8}, "speculative_sampling");
}

TEST_F(Replays, OfPromptLookupAreTheRunsAtTemperatureZero) {
  expect_exact({{"drafter", {{"name", "ngram"}}}, {"workload", {{"categories", {"copy"}}}}}, {1, 2, 4, 8},
               "speculative_sampling");
}

// Of every exact verifier: some look at a part of the tree alone.
TEST_F(Replays, OfTreesAreTheRunsAtTemperatureZero) {
  int verifiers = 0;
  for (const char* draws : {"certain", "independent"}) {
    json changes = {{"drafter", kTree}, {"policy", kTreePolicy}};
    changes["drafter"]["draws"] = draws;
    const Registries& all = bench.registries();
    const std::vector<Drawn> proposes = all.drafters.traits(changes["drafter"], ModelInfo()).proposes;
    const Trace trace = traced(changes);
    for (const json& verifier : conformance::configurations(all.verifiers)) {
      const Soundness soundness = all.verifiers.traits(verifier, ModelInfo());
      const auto taken = [&](Drawn d) { return std::ranges::find(soundness.takes, d) != soundness.takes.end(); };
      if (!soundness.exact() || !std::ranges::all_of(proposes, taken)) continue;
      changes["verifier"] = verifier;
      expect_exact(trace, changes, {1, 2, 4}, verifier["name"]);
      ++verifiers;
    }
  }
  EXPECT_GE(verifiers, 14);
}

TEST_F(Replays, OfRacesAreTheRunsAtEveryTemperature) {
  expect_exact({{"verifier", {{"name", "coupled"}}}, {"sampling", {{"temperature", 1}}}}, {1, 3, 8}, "coupled");
}

// Batches change no round.
TEST_F(Replays, OfABatchAreItsRuns) { expect_exact({{"engine", {{"batch", 3}}}}, {2, 8}, "block_verification"); }

TEST_F(Replays, OfAShapeAndOfABudgetAreTheRunsThatHaveThem) {
  const Trace trace = traced({{"drafter", kTree}, {"policy", kTreePolicy}});
  const CostTable costs(trace);
  const Replay replay(trace, costs, bench.registries());
  json narrow = kTree;
  narrow["shape"] = {2, 1, 1};
  const auto real = tokens_and_rounds(measured({{"drafter", narrow}, {"policy", kTreePolicy}}));
  const Replayed shape =
      replay.cut("shape", {.shape = {{0}, {1}, {0, 0}, {1, 0}, {0, 0, 0}, {1, 0, 0}}}, "traversal_verification");
  EXPECT_EQ(std::pair(shape.tokens, shape.rounds), real);
  EXPECT_EQ(shape.rows, 7);
  const auto few = tokens_and_rounds(measured({{"drafter", kTree}, {"policy", {{"length", 4}, {"nodes", 6}}}}));
  const Replayed budget = replay.cut("nodes", {.nodes = 6}, "speculative_sampling");
  EXPECT_EQ(std::pair(budget.tokens, budget.rounds), few);
}

TEST_F(Replays, OfAPolicyAreItsRuns) {
  const Trace trace = traced(json::object());
  const CostTable costs(trace);
  const Replay replay(trace, costs, bench.registries());
  const auto real = tokens_and_rounds(measured({{"policy", {{"length", 3}}}}));
  const Replayed row = replay.policy({{"name", "fixed"}, {"length", 3}}, "speculative_sampling");
  EXPECT_EQ(std::pair(row.tokens, row.rounds), real);
}

// The mean of the walks of a policy is the expectation that is summed exactly.
TEST_F(Replays, WalksOfAPolicyHaveTheMeanOfItsRounds) {
  const Trace trace = traced({{"sampling", {{"temperature", 1}}}});
  const CostTable costs(trace);
  const Replay replay(trace, costs, bench.registries());
  const Replayed walks = replay.policy({{"name", "fixed"}, {"length", 4}}, "speculative_sampling");
  const Replayed sum = replay.cut("length 4", {.depth = 4}, "speculative_sampling");
  EXPECT_EQ(sum.basis, Basis::given_output);
  EXPECT_NEAR(walks.tau.value, sum.tau.value, 0.03 * sum.tau.value);
  EXPECT_NE(walks.rounds, sum.rounds);
}

// Given the tokens that the target wrote, and given those that the draft drew, a level is reached equally often: both
// are the sum over tokens of the least of p and q, at one level the overlap that the trace holds.
TEST_F(Replays, ChainsAreReachedAsOftenGivenTheOutputAsGivenTheDraft) {
  const Trace trace = traced({{"sampling", {{"temperature", 1}}},
                              {"policy", {{"length", 4}}},
                              {"workload", {{"limit", 24}, {"max_new_tokens", 40}}}});
  const auto outputs = trace.by_request();
  for (const char* verifier : {"speculative_sampling", "block_verification", "target_match"}) {
    const RoundReach rule(trace, verifier, bench.registries().verifiers.traits({{"name", verifier}}, ModelInfo()));
    const bool overlap = std::string(verifier) != "target_match";
    struct Sum {
      double difference = 0, squares = 0;
    } level[4], first;
    const auto add = [](Sum& sum, double d) { sum.difference += d, sum.squares += d * d; };
    for (const auto& output : outputs)
      for (std::size_t t = 0; t < output.size(); ++t) {
        const CutTree tree = cut_of(*output[t], {});
        if (tree.depth < 4) continue;
        const auto by_output = rule.reach(output, t, tree, Basis::given_output);
        const auto by_draft = rule.reach_given_tree(*output[t], tree);
        for (std::size_t i = 0; i < 4; ++i) add(level[i], by_output[i] - by_draft[i]);
        add(first, by_output[0] - output[t]->overlap.at(0));
      }
    for (const Sum& sum : level) EXPECT_LT(std::abs(sum.difference), 4 * std::sqrt(sum.squares)) << verifier;
    if (overlap) {
      EXPECT_LT(std::abs(first.difference), 4 * std::sqrt(first.squares)) << verifier;
    }
    EXPECT_GT(first.squares, 1);
  }
}

// The prompts of the demo in two halves, each with all categories.
std::pair<std::string, std::string> halves() {
  std::ifstream in("experiments/prompts.jsonl");
  std::map<std::string, int> seen;
  std::pair<std::string, std::string> both;
  for (std::string line; std::getline(in, line);)
    (seen[json::parse(line)["category"]]++ % 2 == 0 ? both.first : both.second) += line + "\n";
  return both;
}

class HeldOut : public Replays {
 protected:
  void SetUp() override {
    const auto [a, b] = halves();
    first_ = folder.write("first.jsonl", a).string(), second_ = folder.write("second.jsonl", b).string();
  }
  json on(const std::string& prompts, json changes) const {
    changes["workload"].update({{"prompts", prompts}, {"limit", 24}, {"max_new_tokens", 32}});
    return changes;
  }
  // Whether prediction and run differ by no more than both vary over prompts: the 95 % interval of a difference.
  void expect_predicted(const Replayed& predicted, const json& changes) {
    const Measured run = measured(on(second_, changes));
    std::map<int, Term> by_prompt;
    for (const json& r : json(to_json(run.record)["requests"])) {
      Term& term = by_prompt[r["prompt"].get<int>()];
      term.top += r["tokens"].get<double>(), term.bottom += r["rounds"].get<double>();
    }
    std::vector<Term> terms;
    for (const auto& [prompt, term] : by_prompt) terms.push_back(term);
    const Interval real = mean_interval(terms, 0, kMaxPath);
    ASSERT_GE(by_prompt.size(), 20u);
    EXPECT_LT(std::abs(predicted.tau.value - real.value), std::hypot(predicted.tau.width(), real.width()) / 2)
        << predicted.what << ": predicted " << predicted.tau.value << ", measured " << real.value;
    EXPECT_LT(predicted.tau.width(), 0.5 * predicted.tau.value) << "an interval that says something";
    RecordProperty(predicted.what, std::to_string(predicted.tau.value) + " predicted, " + std::to_string(real.value));
  }
  std::string first_, second_;
};

TEST_F(HeldOut, RunsLieInTheIntervalsOfEveryLength) {
  const Trace trace = traced(on(first_, json::object()));
  const CostTable costs(trace);
  const Replay replay(trace, costs, bench.registries());
  for (const int length : {1, 2, 4, 8}) {
    const Replayed row = replay.cut("length " + std::to_string(length), {.depth = length}, "speculative_sampling");
    expect_predicted(row, {{"policy", {{"length", length}}}});
  }
}

TEST_F(HeldOut, RunsOfATreeLieInItsInterval) {
  const Trace trace = traced(on(first_, {{"drafter", kTree}, {"policy", kTreePolicy}}));
  const CostTable costs(trace);
  const Replay replay(trace, costs, bench.registries());
  json narrow = kTree;
  narrow["shape"] = {2, 1, 1};
  expect_predicted(
      replay.cut("shape", {.shape = {{0}, {1}, {0, 0}, {1, 0}, {0, 0, 0}, {1, 0, 0}}}, "speculative_sampling"),
      {{"drafter", narrow}, {"policy", kTreePolicy}});
}

// Other draws, same prompts: chains by the text, token-wise and as blocks, and trees by their expectations.
TEST_F(HeldOut, RunsAtTemperatureOneLieInTheIntervals) {
  const json warm = {{"sampling", {{"temperature", 1}}}};
  const Trace trace = traced(on(first_, warm));
  const CostTable costs(trace);
  const Replay replay(trace, costs, bench.registries());
  for (const char* verifier : {"speculative_sampling", "block_verification", "target_match"}) {
    json run = warm;
    run["policy"] = {{"length", 4}}, run["verifier"] = {{"name", verifier}};
    const Replayed row = replay.cut(std::string("length 4 ") + verifier, {.depth = 4}, verifier);
    EXPECT_EQ(row.basis, Basis::given_output);
    expect_predicted(row, run);
  }
}

TEST_F(HeldOut, TreesAtTemperatureOneLieInTheInterval) {
  const json tree = {{"sampling", {{"temperature", 1}}}, {"drafter", kTree}, {"policy", kTreePolicy}};
  const Trace trace = traced(on(first_, tree));
  const CostTable costs(trace);
  const Replay replay(trace, costs, bench.registries());
  const Replayed row = replay.cut("tree", {}, "speculative_sampling");
  EXPECT_EQ(row.basis, Basis::expectation);
  expect_predicted(row, tree);
}

}  // namespace
}  // namespace foretoken::test

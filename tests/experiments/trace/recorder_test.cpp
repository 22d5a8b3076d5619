// What a trace holds of a round: the verifiers' own rules, followed over every outcome, must say the same.
#include "experiments/trace/recorder.h"

#include <cmath>

#include <gtest/gtest.h>

#include "experiments/conformance/scenario.h"
#include "experiments/trace/replay.h"
#include "kernels/reference/reference_backend.h"
#include "tests/experiments/trace/traced_run.h"

namespace foretoken::test {
namespace {

class Recorded : public testing::Test, public TracedRuns {
 protected:
  json drawn(const char* how) const {
    return {
        {"drafter", {{"name", "draft_tree"}, {"model", "experiments/models/draft"}, {"shape", {3, 2}}, {"draws", how}}},
        {"policy", {{"length", 2}, {"nodes", 10}}},
        {"sampling", {{"temperature", 1}}},
        {"workload", {{"limit", 2}, {"max_new_tokens", 6}}}};
  }
  static json with(json changes, const json& verifiers) {
    changes["trace"] = {{"dense", true}, {"verifiers", verifiers}};
    return changes;
  }
  Soundness soundness_of(const char* verifier) const {
    return bench.registries().verifiers.traits({{"name", verifier}}, ModelInfo());
  }
  // Whether the formulas on recorded numbers give what the verifier's rule does, level cut by level cut; returns the
  // number of rounds.
  int expect_formula(const Trace& trace, const char* verifier) const {
    const RoundReach formula(trace, verifier, soundness_of(verifier));
    const bool formula_is_joint = soundness_of(verifier).acceptance == Acceptance::joint;
    int rounds = 0;
    for (const auto& step : trace.steps)
      for (const TracedRound& r : step.rounds) {
        if (r.nodes.empty()) continue;
        const Reach& followed = r.reach.at(verifier);
        for (std::size_t d = 1; d <= followed.size(); ++d) {
          const std::vector<double> found = formula.reach_given_tree(r, cut_of(r, {.depth = int(d)}));
          EXPECT_EQ(found.size(), d);
          // A joint rule looks at deeper tokens before it accepts, its formula at those of the level: they meet at the
          // deepest level, and in the mean over drafts at the others.
          const std::size_t first = formula_is_joint ? d - 1 : 0;
          for (std::size_t i = first; i < d; ++i) EXPECT_NEAR(found[i], followed[d - 1][i], 1e-7) << verifier;
        }
        ++rounds;
      }
    return rounds;
  }
};

TEST_F(Recorded, AcceptanceOfTreesIsThatOfTheRules) {
  for (const auto& [how, verifier] : {std::pair{"independent", "speculative_sampling"},
                                      {"without_replacement", "without_replacement"},
                                      {"certain", "speculative_sampling"},
                                      {"independent", "block_verification"},
                                      {"independent", "target_match"}}) {
    json run = with(drawn(how), {verifier});
    run["verifier"] = {{"name", verifier}};
    EXPECT_GT(expect_formula(traced(run), verifier), 8) << how << ", " << verifier;
  }
}

TEST_F(Recorded, AcceptanceOfChainsIsThatOfTheRules) {
  const json names{"speculative_sampling", "block_verification", "k_seq", "traversal_verification", "target_match"};
  const Trace trace = traced(with({{"sampling", {{"temperature", 1}}},
                                   {"policy", {{"length", 4}}},
                                   {"workload", {{"limit", 2}, {"max_new_tokens", 8}}}},
                                  names));
  for (const auto& name : names) EXPECT_GT(expect_formula(trace, name.get<std::string>().c_str()), 10) << name;
}

// The overlap is the mean acceptance over what the draft may draw: that of an only child, by its own draws.
TEST_F(Recorded, OverlapsAreSumsOfTheLesserProbability) {
  const Trace trace = traced({{"sampling", {{"temperature", 1}}}, {"policy", {{"length", 2}}}});
  double accept = 0, overlap = 0, squares = 0;
  int rounds = 0;
  for (const auto& step : trace.steps)
    for (const TracedRound& r : step.rounds) {
      if (r.nodes.empty()) continue;
      const double a = r.node(1).accept, o = r.overlap.at(0);
      EXPECT_NEAR(a, std::min(1.0, r.node(1).p / r.node(1).q), 1e-8);
      accept += a, overlap += o, squares += (a - o) * (a - o), ++rounds;
    }
  ASSERT_GT(rounds, 60);
  EXPECT_LT(std::abs(accept - overlap), 4 * std::sqrt(squares));
}

// Where the target wrote what was drafted, the next round begins at the first node: both hold the same distributions.
TEST_F(Recorded, NumbersOfANodeAreThoseOfTheRoundThatBeginsThere) {
  const Trace trace = traced({{"sampling", {{"temperature", 1}}}, {"policy", {{"length", 4}}}});
  int overlaps = 0, deeper = 0, nodes = 0;
  for (const auto& output : trace.by_request())
    for (std::size_t t = 0; t + 1 < output.size(); ++t) {
      const TracedRound &r = *output[t], &next = *output[t + 1];
      if (r.nodes.empty() || r.node(1).token != r.emitted.front()) continue;
      for (int n = 1; n + 1 < r.size() && n < next.size(); ++n) {
        EXPECT_NEAR(r.overlap.at(n), next.overlap.at(n - 1), 1e-8) << "node " << n;
        ++overlaps, deeper += n > 1;
        const TracedNode &here = r.node(n + 1), &there = next.node(n);
        if (here.token != there.token) break;
        EXPECT_NEAR(here.p, there.p, 1e-8);
        EXPECT_NEAR(here.q, there.q, 1e-8);
        EXPECT_NEAR(here.accept, there.accept, 1e-8);
        ++nodes;
      }
    }
  EXPECT_GT(overlaps, 20);
  EXPECT_GT(deeper, 0);
  EXPECT_GT(nodes, 0);
}

// Races write one text, whatever was accepted: where a path ends, a dense trace has a round.
TEST_F(Recorded, WhatFollowsAPathIsThatOfItsLastNode) {
  const json run = {{"verifier", {{"name", "coupled"}}}, {"sampling", {{"temperature", 1}}}};
  json sparse = run;
  sparse["trace"] = {{"dense", false}};
  const Trace dense = traced(run), trace = traced(sparse);
  const auto rounds = dense.by_request();
  int paths = 0, drawn = 0;
  for (const auto& output : trace.by_request())
    for (const TracedRound* r : output) {
      if (r->emitted.size() <= r->path.size()) continue;  // the end of the output
      const TracedRound& there = *rounds[std::size_t(r->request)].at(std::size_t(r->at) + r->path.size());
      EXPECT_EQ(r->emitted.back(), there.emitted.front());
      EXPECT_NEAR(r->p_next, there.p_next, 1e-8);
      if (r->path.empty()) continue;
      ++paths;
      if (r->q_next < 0 || there.q_next < 0) continue;
      EXPECT_NEAR(r->q_next, there.q_next, 1e-8);
      ++drawn;
    }
  EXPECT_GT(paths, 10);
  EXPECT_GT(drawn, 5);
}

TEST_F(Recorded, NodesAsideAreAbsentGuesses) {
  json run{{"drafter", {{"name", "lookahead"}, {"window", 4}, {"ngram", 3}, {"guesses", 4}}},
           {"policy", {{"length", 8}, {"nodes", 20}}},
           {"sampling", {{"temperature", 0}}},
           {"workload", {{"limit", 1}, {"max_new_tokens", 96}}},
           {"trace", {{"dense", false}, {"verifiers", {"speculative_sampling", "target_match"}}}}};
  const Trace trace = traced(run);
  int absent = 0, guessed = 0, accepted = 0;
  for (const auto& step : trace.steps)
    for (const TracedRound& r : step.rounds) {
      for (const TracedNode& n : r.nodes) {
        EXPECT_EQ(n.drawn, Drawn::certain);
        (n.token < 0 ? absent : guessed) += 1;
      }
      for (const int n : r.path) EXPECT_GE(r.node(n).token, 0);
      accepted += int(r.path.size());
    }
  EXPECT_GT(absent, 100);
  EXPECT_GT(guessed, 10);
  EXPECT_GT(accepted, 3);
}

// A dense trace writes plain decoding's output, and a recorded run that of the run.
TEST_F(Recorded, OutputsAreThoseOfTheRuns) {
  for (const bool dense : {true, false}) {
    const json run = {{"sampling", {{"temperature", 1}}}, {"trace", {{"dense", dense}}}};
    const Trace trace = traced(run);
    const Measured real = measured({{"sampling", {{"temperature", 1}}}}, dense ? Side::baseline : Side::speculative);
    std::vector<std::vector<Token>> outputs;
    for (const auto& rounds : trace.by_request()) {
      outputs.emplace_back();
      for (const TracedRound* r : rounds)
        outputs.back().insert(outputs.back().end(), r->emitted.begin(), r->emitted.end());
    }
    EXPECT_EQ(outputs, real.outputs) << dense;
    EXPECT_EQ(double(trace.rounds()), tokens_and_rounds(real).second) << dense;
    EXPECT_EQ(trace.dense(), dense);
  }
}

TEST_F(Recorded, TimesAreThoseOfTheStep) {
  const Trace trace = traced(with(drawn("independent"), {"traversal_verification"}));
  bool baseline = false;
  for (const TracedStep& s : trace.steps) {
    baseline |= s.baseline;
    EXPECT_GT(s.phases.total, 0);
    EXPECT_LT(s.phases.verify, s.phases.total) << "recording, which takes long, is no part of it";
    EXPECT_EQ(s.baseline, s.rounds.empty());
  }
  EXPECT_TRUE(baseline);
}

// Orders of the literature on recorded contexts. They are theorems in the mean over drafts of a context, not given the
// tokens of one draft.
TEST_F(Recorded, OrdersHoldOnRecordedContexts) {
  const json chains = {{"sampling", {{"temperature", 1}}},
                       {"policy", {{"length", 4}}},
                       {"workload", {{"limit", 4}, {"max_new_tokens", 10}}}};
  const Trace chain = traced(with(chains, {"block_verification", "speculative_sampling"}));
  const Orders of_chains = orders_of({{"chains", &chain}});
  ASSERT_EQ(of_chains.pairs.size(), 1u);
  EXPECT_EQ(of_chains.accepting[0].verifier, "block_verification");
  EXPECT_GT(of_chains.pairs[0].more, 5);
  EXPECT_GT(of_chains.pairs[0].gain.value, 0) << "block >= token-wise in the mean";

  json trees = with(drawn("independent"), {"speculative_sampling", "traversal_verification"});
  trees["workload"] = {{"limit", 6}, {"max_new_tokens", 10}};
  const Trace tree = traced(trees);
  const Orders of_trees = orders_of({{"trees", &tree}});
  ASSERT_EQ(of_trees.pairs.size(), 1u);
  EXPECT_EQ(of_trees.accepting[1].verifier, "traversal_verification");
  EXPECT_LT(of_trees.pairs[0].gain.value, 0) << "traversal >= recursive in the mean";
}

// The same contexts with other drafts, which equal budgets make comparable: also orders in the mean.
TEST_F(Recorded, OrdersHoldBetweenKindsOfDrafts) {
  const auto recorded = [this](const char* how, const json& shape, const char* verifier) {
    json run = with(drawn(how), {verifier});
    run["drafter"]["shape"] = shape, run["workload"] = {{"limit", 6}, {"lengths", "equal"}, {"max_new_tokens", 10}};
    run["verifier"] = {{"name", verifier}};
    return traced(run);
  };
  const auto gain = [](const Trace& more, const Trace& less) {
    const Orders orders = orders_of({{"more", &more}, {"less", &less}});
    EXPECT_EQ(orders.pairs.size(), 1u);
    EXPECT_GT(orders.pairs.at(0).rounds, 40);
    return orders.pairs.at(0).gain.value;
  };
  EXPECT_GT(gain(recorded("without_replacement", {3, 2}, "without_replacement"),
                 recorded("independent", {3, 2}, "speculative_sampling")),
            0.01);
  EXPECT_GT(gain(recorded("independent", {3, 1}, "k_seq"), recorded("independent", {1, 1}, "k_seq")), 0.01);
}

TEST_F(Recorded, TracesOfOtherOutputsAreNotCompared) {
  const json names{"speculative_sampling"};
  const Trace a = traced(with(drawn("independent"), names));
  json other = with(drawn("independent"), names);
  other["sampling"]["seed"] = 2;
  const Trace b = traced(other);
  EXPECT_TRUE(says(sentence_of([&] { orders_of({{"a.jsonl", &a}, {"b.jsonl", &b}}); }), "b.jsonl", "a.jsonl"));
  const Trace bare = traced(drawn("independent"));
  EXPECT_TRUE(says(sentence_of([&] { orders_of({{"c.jsonl", &bare}}); }), "c.jsonl", "/trace/verifiers"));
}

// As `foretoken run` does it: the trace belongs to the result line, which has no figure of it.
TEST_F(Recorded, ARunWritesItBesideItsResult) {
  const std::string file = (folder.path() / "t-{key}.jsonl").string();
  const json document = complete({{"trace", {{"file", file}, {"dense", true}}}, {"measure", {{"repeats", 1}}}});
  const foretoken::Run run{document, json::object(), key_of(document)};
  const json line = to_json(measure_run(run, bench, "", [](double) {}));
  ASSERT_FALSE(line.contains("error")) << line["error"];
  const Trace trace = read_trace(folder.path() / ("t-" + run.key + ".jsonl"));
  for (const char* field : {"run", "key", "commit", "sources", "machine"}) EXPECT_TRUE(trace.header.contains(field));
  EXPECT_EQ(trace.run(), line["run"]);
  EXPECT_EQ(trace.header["sources"], line["sources"]);
  EXPECT_LT(line["repeats"][0]["speculative"]["rounds"], double(trace.rounds())) << "the measurement accepts drafts";
}

TEST_F(Recorded, RunsOfASweepWriteTracesOfTheirOwn) {
  nlohmann::ordered_json sweep;
  sweep["base"] = demo_run({{"trace", "t.jsonl"}});
  sweep["axes"]["/policy/length"] = {1, 2};
  const auto runs = [&] { return expand(sweep, {}, bench.registries(), "the sweep"); };
  EXPECT_TRUE(says(sentence_of(runs), "the sweep", "t.jsonl", "{key}"));
  sweep["base"]["trace"] = "t-{key}.jsonl";
  const std::vector<foretoken::Run> two = runs();
  EXPECT_EQ(trace_file(two[0]), "t-" + two[0].key + ".jsonl");
  EXPECT_NE(trace_file(two[0]), trace_file(two[1]));
}

TEST_F(Recorded, WhatCannotBeRecordedIsASentence) {
  json run = with(drawn("without_replacement"), {"k_seq"});
  run["verifier"] = {{"name", "without_replacement"}};
  EXPECT_TRUE(says(sentence_of([&] { traced(run); }), "k_seq", "'without_replacement'", "leave it out"));
  run = with(drawn("independent"), {"coupled"});
  EXPECT_TRUE(says(sentence_of([&] { traced(run); }), "coupled", "races"));
  run["trace"]["file"] = "x";
  EXPECT_TRUE(says(sentence_of([&] { complete(run); }), "coupled", "races")) << "before a model is loaded";
  EXPECT_TRUE(
      says(sentence_of([&] { complete({{"trace", {{"file", "x"}, {"verifiers", {"sequoia"}}}}}); }), "sequoia"));
  EXPECT_TRUE(says(sentence_of([&] { complete({{"trace", {{"file", "x"}, {"danse", true}}}}); }), "/trace/danse",
                   "/trace/dense"));
  EXPECT_TRUE(says(sentence_of([&] { complete({{"trace", {{"dense", true}}}}); }), "/trace/file"));
  EXPECT_TRUE(says(sentence_of([&] { complete({{"trace", 3}}); }), "/trace"));
  EXPECT_EQ(complete({{"trace", "a.jsonl"}})["trace"],
            json({{"file", "a.jsonl"}, {"dense", false}, {"verifiers", json::array()}}));
  EXPECT_FALSE(complete(json::object()).contains("trace")) << "other runs keep their identity";
}

// It accepts no draft, whatever the drafter gave it.
TEST(Recorders, OfDenseTracesRaiseNoDoubtOfTheDrafts) {
  using namespace conformance;
  const Registries all = all_registries();
  const json sampling{{"name", "speculative_sampling"}};
  const std::vector<TestRequest> requests = random_requests(24, 40, 10, 30, 3);
  std::map<std::uint64_t, Recorder::Request> by_stream;
  for (const TestRequest& r : requests) by_stream[r.stream] = {int(by_stream.size()), int(r.prompt.size())};
  for (const bool dense : {false, true}) {
    Recorder recorder({.dense = dense, .verifiers = {}}, by_stream);
    const Subject subject{
        recorder.recording(all, sampling),
        {{{"name", "draft_model"}, {"model", "table:far"}}, {{"name", "fixed"}, {"length", 3}}, sampling}};
    std::string doubt;
    ReferenceBackend backend;
    (void)run_scenario(
        {subject,
         {.sampling = {.temperature = 0}, .engine = {.batch = 8, .step_rows = 256, .page_rows = 4, .pages = 512}},
         backend,
         table_models({.vocab = 40, .order = 2, .seed = 5, .positions = 128}),
         requests},
        [&](Engine& e, const StepReport&, auto) { doubt = e.doubt(); });
    EXPECT_EQ(doubt.empty(), dense) << doubt;
  }
}

}  // namespace
}  // namespace foretoken::test

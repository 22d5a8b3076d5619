// The file of a trace, damaged in many ways; and what a replay refuses.
#include "experiments/trace/trace.h"

#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "tests/experiments/trace/made_trace.h"
#include "tests/experiments/trace/traced_run.h"

namespace foretoken::test {
namespace {

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TraceFile, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "t.jsonl";
  write_trace(file, made_trace());
  const Trace made = made_trace(), read = read_trace(file);
  ASSERT_EQ(read.steps.size(), made.steps.size());
  EXPECT_EQ(read.rounds(), made.rounds());
  const TracedRound &a = made.steps[0].rounds[0], &b = read.steps[0].rounds[0];
  EXPECT_EQ(b.nodes.size(), a.nodes.size());
  EXPECT_EQ(b.node(2).token, a.node(2).token);
  EXPECT_EQ(b.node(2).q, a.node(2).q);
  EXPECT_EQ(b.overlap, a.overlap);
  EXPECT_EQ(b.reach, a.reach);
  EXPECT_EQ(b.emitted, a.emitted);
  EXPECT_EQ(read.steps[0].phases.total, made.steps[0].phases.total);
  EXPECT_EQ(read.requests[1].category, "math");
}

TEST(TraceFile, DamageIsASentenceThatNamesTheLine) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "t.jsonl";
  write_trace(file, made_trace());
  const std::string whole = bytes_of(file);
  const auto refused = [&](const std::string& bytes) {
    const auto damaged = folder.write("d.jsonl", bytes);
    return sentence_of([&] { read_trace(damaged); });
  };
  for (const auto& [from, to, words] :
       std::vector<std::array<std::string, 3>>{{"\"parents\":[0,1]", "\"parents\":[0,2]", "parents"},
                                               {"\"parents\":[0,1]", "\"parents\":[0]", "entries"},
                                               {"\"drawn\":\"chain\"", "\"drawn\":\"train\"", "train"},
                                               {"\"request\":0", "\"request\":7", "request"},
                                               {"\"at\":1", "\"at\":2", "begins after"},
                                               {"\"p\":[0.5", "\"p\":[1.5", "range"},
                                               {"\"p\":[0.5", "\"p\":[\"x\"", "range"},
                                               {"\"emitted\":[11]", "\"emitted\":[11,12]", "emitted"},
                                               {"\"emitted\":[11]", "\"emitted\":[]", "emitted"},
                                               {"\"judged\":1", "\"judged\":2", "judged"},
                                               {"\"phases\":[0.0", "\"phases\":[null", "phase"},
                                               {"\"dense\":true", "\"dense\":1", "dense"},
                                               {"\"length\":2", "\"length\":3", "key"},
                                               {"\"trace\":1", "\"trace\":2", "schema"}})
    EXPECT_TRUE(says(refused(replaced(whole, from, to)), "d.jsonl", words, "record it again")) << from << " -> " << to;
  EXPECT_TRUE(says(refused(whole.substr(0, whole.rfind("{\"trace\""))), "no end", "record it again"));
  EXPECT_TRUE(says(refused(whole + whole), "begins another trace"));
  EXPECT_TRUE(says(refused(whole.substr(whole.find('\n') + 1)), "header"));
  EXPECT_TRUE(says(refused("{\"schema\":1}\n"), "not a line of an acceptance trace"));
  EXPECT_TRUE(says(refused("notes\n"), "d.jsonl:1", "traces of"));
  EXPECT_TRUE(says(refused(""), "empty"));
  const auto second = whole.find('\n') + 1, third = whole.find('\n', second) + 1;
  EXPECT_NE(refused(whole.substr(0, second) + whole.substr(third)), "") << "a line is missing";
  EXPECT_TRUE(says(refused(replaced(whole, "{\"trace\":1,\"line\":\"step\"", "{\"trace\":1\"line\":\"step\"")),
                   "damaged", "record the trace again"));
  for (std::size_t cut = 1; cut + 40 < whole.size(); cut += 37) EXPECT_NE(refused(whole.substr(0, cut)), "") << cut;
}

TEST(TraceFile, AnOlderTraceIsSetAsideAndOtherFilesAreNot) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "t.jsonl";
  write_trace(file, made_trace());
  const std::string first = bytes_of(file);
  write_trace(file, made_trace());
  EXPECT_EQ(bytes_of(file.string() + ".1"), first);
  const auto notes = folder.write("notes.txt", "mine\n");
  EXPECT_TRUE(says(sentence_of([&] { write_trace(notes, made_trace()); }), "notes.txt"));
  EXPECT_EQ(bytes_of(notes), "mine\n");
}

class Refusals : public testing::Test, public TracedRuns {
 protected:
  Refusals() : trace(made_trace()), costs(trace) {}
  template <class F> std::string refused(const F& ask) const {
    return sentence_of([&] { ask(Replay(trace, costs, bench.registries())); });
  }
  Trace trace;
  CostTable costs;
};

TEST_F(Refusals, WhatLiesOutsideOfTheTraceIsASentence) {
  const auto cut = [&](const TreeCut& c, const char* verifier) {
    return refused([&](const Replay& r) { r.cut("the draft", c, verifier); });
  };
  EXPECT_EQ(cut({.depth = 2}, "speculative_sampling"), "");
  EXPECT_TRUE(says(cut({.depth = 3}, "speculative_sampling"), "3 levels", "at most 2", "longer drafts"));
  EXPECT_TRUE(says(cut({.shape = {{0}, {1}}}, "speculative_sampling"), "[1]", "wider trees"));
  EXPECT_TRUE(says(cut({}, "typical_acceptance"), "typical_acceptance", "lossy"));
  EXPECT_TRUE(says(cut({}, "coupled"), "races"));
  EXPECT_TRUE(says(cut({}, "speculative"), "speculative_sampling"));
  EXPECT_TRUE(
      says(refused([](const Replay& r) { r.policy({{"name", "fixed"}, {"length", 9}}, "speculative_sampling"); }),
           "9 levels"));
  trace.header["dense"] = false;
  EXPECT_TRUE(says(cut({}, "speculative_sampling"), "not dense", "\"dense\": true"));
}

TEST_F(Refusals, ShapesThatVaryAreNotCut) {
  TracedRound& r = trace.steps[0].rounds[0];
  r.nodes = {{0, 5, Drawn::certain, 0.5, 1, 0.5}, {0, 6, Drawn::certain, 0.25, 1, 0.5}};
  r.overlap.clear();
  TracedRound& other = trace.steps[1].rounds[0];
  other.nodes = {{0, 5, Drawn::certain, 0.5, 1, 0.5}};
  const auto ask = [&](int depth, int nodes) {
    return refused([&](const Replay& replay) {
      replay.cut("the draft", {.depth = depth, .nodes = nodes}, "speculative_sampling");
    });
  };
  EXPECT_TRUE(says(ask(1, 2), "shapes vary"));
}

TEST_F(Refusals, TimesAreNotExtrapolated) {
  EXPECT_NEAR(costs.round(2, 1), 0.011 + 0.002, 1e-12);
  EXPECT_NEAR(costs.plain(), 0.009, 1e-12);
  EXPECT_TRUE(says(sentence_of([&] { (void)costs.round(5, 2); }), "5 rows", "1 to 3", "not extrapolated", "--costs"));
  TimesBy times("rows");
  times.add(2, 1), times.add(2, 3), times.add(2, 2), times.add(6, 4);
  EXPECT_EQ(times.at(5), 3.5) << "a straight line between medians";
  EXPECT_EQ(times.errors(), (std::vector<double>{0.5, 0.5, 0, 0}));
  Trace other = trace;
  other.header["run"]["drafter"]["name"] = "ngram";
  EXPECT_TRUE(says(sentence_of([&] { costs.add(other, "o.jsonl"); }), "o.jsonl", "another run", "drafter"));
}

// The best length of every round is at least as good as any one length.
TEST_F(Refusals, TheOracleIsAnUpperBound) {
  const Replay replay(trace, costs, bench.registries());
  const Replayed oracle = replay.oracle({}, "speculative_sampling");
  for (const int length : {0, 1, 2}) {
    const Replayed row = replay.cut("length", {.depth = length}, "speculative_sampling");
    EXPECT_GE(oracle.speedup.value, row.speedup.value) << length;
  }
  EXPECT_LE(oracle.tau.value, replay.cut("length", {.depth = 2}, "speculative_sampling").tau.value + 1e-12);
}

}  // namespace
}  // namespace foretoken::test

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
  for (double Phases::* phase : {&Phases::draft_forward, &Phases::draft_other, &Phases::total})
    EXPECT_EQ(read.steps[0].phases.*phase, made.steps[0].phases.*phase);
  EXPECT_EQ(read.steps[0].depth, made.steps[0].depth);
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
                   "damaged", "record it again"));
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

TEST(TraceFile, FailedRequestsAreLeftOut) {
  const TemporaryFolder folder;
  const auto written = [&](Trace trace, const std::set<int>& failed) {
    TraceWriter writer(folder.path() / "t.jsonl", trace.header, trace.requests);
    for (const TracedStep& s : trace.steps) writer.append(s);
    writer.close(failed);
    return folder.path() / "t.jsonl";
  };
  Trace made = made_trace();
  std::erase_if(made.steps, [](const TracedStep& s) {
    return !s.rounds.empty() && s.rounds[0].request == 0 && s.rounds[0].at > 0;
  });
  const Trace read = read_trace(written(made, {0}));
  ASSERT_EQ(read.requests.size(), 1u);
  EXPECT_EQ(read.requests[0].category, "math");
  EXPECT_EQ(read.rounds(), 3u);
  EXPECT_EQ(read.by_request()[0].size(), 3u);
  EXPECT_EQ(read.steps.size(), made.steps.size()) << "the times of its steps stay";
  EXPECT_TRUE(says(sentence_of([&] { read_trace(written(made, {0, 1})); }), "t.jsonl", "all requests failed"));
  EXPECT_TRUE(says(sentence_of([&] { read_trace(written(made, {2})); }), "t.jsonl", "failed"));
}

// A trace is in the way of another, or cannot be written: what helps is not what helps a reader, nor a file of results.
TEST(TraceFile, WhatStopsItsWriterSaysWhatHelps) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "t.jsonl";
  const auto sentence = [&](const std::filesystem::path& at) {
    return sentence_of([&] { write_trace(at, made_trace()); });
  };
  write_trace(file, made_trace());
  const std::string whole = bytes_of(file);
  for (const auto& [from, to] : {std::pair{"{\"trace\":1,\"line\":\"step\"", "{\"trace\":1\"line\":\"step\""},
                                 std::pair{"\"trace\":1", "\"trace\":2"}}) {
    folder.write("t.jsonl", replaced(whole, from, to));
    EXPECT_TRUE(says(sentence(file), "t.jsonl", "move it elsewhere")) << to;
    EXPECT_FALSE(says(sentence(file), "record")) << "the user does that";
  }
  const auto is_trace = [](const std::string& s) { return says(s, "trace", "/trace/file") && !says(s, "--results"); };
  const std::string folder_itself = sentence(folder.path());
  EXPECT_TRUE(is_trace(folder_itself)) << folder_itself;
  const std::string below_a_file = sentence(file / "t.jsonl");
  EXPECT_TRUE(is_trace(below_a_file)) << below_a_file;
  folder.write("t.jsonl", "");
  const ResultsFile results(file);
  const std::string used = sentence(file);
  EXPECT_TRUE(is_trace(used) && says(used, "file of results")) << used;
  EXPECT_TRUE(says(sentence_of([&] { ResultsFile again(file); }), "another process", "--results"));
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
  trace.header["run"]["policy"] = {{"name", "fixed"}, {"confidence", 0.4}};
  EXPECT_TRUE(says(cut({}, "speculative_sampling"), "by the draft's confidence", "without '/policy/confidence'"));
  trace.header["run"]["policy"]["confidence"] = nullptr;
  EXPECT_EQ(cut({}, "speculative_sampling"), "");
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
  EXPECT_NEAR(costs.round(3, 0), 0.012, 1e-12) << "the target's alone";
  EXPECT_NEAR(costs.plain(), 0.009, 1e-12);
  EXPECT_TRUE(says(sentence_of([&] { (void)costs.round(5, 2); }), "5 rows", "1 to 3", "not extrapolated", "--costs"));
  TimesBy times("rows");
  times.add(2, 1), times.add(2, 3), times.add(2, 2), times.add(6, 4);
  EXPECT_EQ(times.at(5), 3.5) << "a straight line between medians";
  EXPECT_EQ(times.errors(), (std::vector<double>{0.5, 0.5, 0, 0}));
  Trace other = trace;
  other.header["run"]["drafter"]["name"] = "ngram";
  EXPECT_TRUE(says(sentence_of([&] { costs.add(other, "o.jsonl"); }), "o.jsonl", "another run", "drafter"));
  for (const char* pointer : {"/run/target/model", "/run/engine/batch", "/run/engine/threads", "/run/engine/numerics",
                              "/machine/cpu", "/machine/cores", "/machine/device", "/machine/description"}) {
    other.header = trace.header;
    other.header[json::json_pointer(pointer)] = "another";
    EXPECT_TRUE(says(sentence_of([&] { costs.add(other, "o.jsonl"); }), "o.jsonl", "another run")) << pointer;
  }
  const std::size_t steps = costs.steps();
  other = trace;
  for (TracedStep& s : other.steps) s.rows += 2, s.phases.total += 0.002;
  costs.add(other, "o.jsonl");
  EXPECT_EQ(costs.steps(), 2 * steps);
  EXPECT_NEAR(costs.round(5, 2), 0.014 + 0.004, 1e-12) << "now they were measured";
}

// Only steps of a full batch that read no prompt are those of a round.
TEST_F(Refusals, StepsOfOtherKindsAreNotTimed) {
  trace.header["run"]["engine"]["batch"] = 2;
  for (TracedStep& s : trace.steps) s.judged = 2, s.rows *= 2;
  const CostTable full(trace);
  EXPECT_EQ(full.steps(), trace.steps.size());
  const double seconds = full.round(2, 1), plain = full.plain();
  EXPECT_NEAR(seconds, 0.011 + 0.002, 1e-12) << "of two sequences";
  const std::vector<TracedStep> steps = trace.steps;
  for (TracedStep s : steps) {
    s.phases.total = 9;
    s.judged = 1, trace.steps.push_back(s);
    s.judged = 2, s.prompt_rows = 1, trace.steps.push_back(s);
    s.judged = 3, s.prompt_rows = 0, trace.steps.push_back(s);
    s.judged = 2, s.phases.total = s.phases.draft_forward, trace.steps.push_back(s);  // a clock was set meanwhile
  }
  const CostTable mixed(trace);
  EXPECT_EQ(mixed.steps(), full.steps());
  EXPECT_EQ(mixed.round(2, 1), seconds);
  EXPECT_EQ(mixed.plain(), plain);
}

// By hand: r is q / p of what the target wrote, 1/2 and then 2, or 2 and then 1/4.
TEST_F(Refusals, AChainIsReachedByTheRatiosOfTheOutput) {
  const auto reach = [&](const char* verifier) {
    const RoundReach rule(trace, verifier, bench.registries().verifiers.traits({{"name", verifier}}, ModelInfo()));
    const auto output = trace.by_request()[0];
    return rule.reach(output, 0, cut_of(*output[0], {}), Basis::given_output);
  };
  const auto set = [&](double p, double q, double p_then, double q_then) {
    TracedRound &a = trace.steps[0].rounds[0], &b = trace.steps[1].rounds[0];
    a.p_next = p, a.q_next = q, b.p_next = p_then, b.q_next = q_then;
  };
  using Levels = std::vector<double>;
  set(0.5, 0.25, 0.25, 0.5);
  EXPECT_EQ(reach("speculative_sampling"), (Levels{0.5, 0.5}));
  EXPECT_EQ(reach("block_verification"), (Levels{0.5, 0.5}));
  EXPECT_EQ(reach("target_match"), (Levels{0.25, 0.125}));
  set(0.25, 0.5, 1, 0.25);
  EXPECT_EQ(reach("speculative_sampling"), (Levels{1, 0.25}));
  EXPECT_EQ(reach("block_verification"), (Levels{1, 0.5}));
  EXPECT_EQ(reach("target_match"), (Levels{0.5, 0.125}));
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

// Runs that learn are measured cold and warm, each named; what does not learn is measured once.
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "experiments/session/run_document.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/rounds.h"
#include "experiments/sweep/shards.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

// Guesses what followed the last three tokens in any earlier output; `remembers`: whether it keeps these.
class Answers final : public Drafter {
 public:
  Answers(Backend& backend, bool remembers) : backend_(backend), remembers_(remembers) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      std::vector<Token> tokens = requests[i].sequence->tokens;
      for (int left = requests[i].budget.chain(); left > 0; --left) {
        const auto next = remembers_ ? next_.find(tail(tokens, tokens.size())) : next_.end();
        tokens.push_back(next == next_.end() ? tokens.back() : next->second);
        trees[i].guess(trees[i].nodes - 1, tokens.back());
      }
    }
    return trees;
  }

  void forget(const Sequence& sequence) override {
    for (std::size_t at = 3; at < sequence.tokens.size(); ++at) next_[tail(sequence.tokens, at)] = sequence.tokens[at];
  }

 private:
  static std::vector<Token> tail(std::span<const Token> tokens, std::size_t end) {
    const auto found = tokens.first(end).last(std::min<std::size_t>(3, end));
    return {found.begin(), found.end()};
  }

  Backend& backend_;
  bool remembers_;
  std::map<std::vector<Token>, Token> next_;
};

// Three levels, whatever it measures.
class Clocks final : public LengthPolicy {
 public:
  std::vector<Budget> budgets(std::span<const PastOnly> past) override { return {past.size(), {4, 3}}; }
};

Registries with_learners() {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  for (const bool remembers : {true, false})
    registries.drafters.add(
        remembers ? "remembers" : "repeats",
        entry_that<Drafter>(states(Needs{.proposes = {Drawn::certain}, .learns = true}), [=](const json&, Host& host) {
          return std::make_unique<Answers>(host.backend(), remembers);
        }));
  registries.policies.add("clocks",
                          entry_that<LengthPolicy>(states(PolicyTraits({4, 3}, true)),
                                                   [](const json&, Host&) { return std::make_unique<Clocks>(); }));
  return registries;
}

class RunsThatLearn : public testing::Test {
 protected:
  static json document(const json& changes) {
    json run = demo({{"drafter", {{"name", "remembers"}, {"model", nullptr}}}});
    run.merge_patch(changes);
    return run;
  }
  std::vector<foretoken::Run> runs(const json& changes = json::object()) {
    return expand(nlohmann::ordered_json(document(changes)), {}, bench.registries(), "doc");
  }
  std::string refusal(const json& changes) {
    return sentence_of([&] { runs(changes); });
  }
  json measured(const foretoken::Run& run) {
    json line = to_json(measure_run(run, bench, "", [](double) {}));
    EXPECT_FALSE(line.contains("error")) << line["error"];
    return line;
  }
  static double tau(const json& line) { return ratio(line, "tokens") / ratio(line, "rounds"); }
  static double ratio(const json& line, const char* key) {
    double sum = 0;
    for (const json& repeat : line["repeats"]) sum += repeat["speculative"][key].get<double>();
    return sum;
  }
  Workbench bench{with_learners()};
};

TEST_F(RunsThatLearn, AreTwoColdAndWarm) {
  for (const json& learner : {json::object(), json{{"drafter", {{"name", "ngram"}}},
                                                   {"policy", {{"name", "clocks"}, {"length", nullptr}}}}}) {
    const auto both = runs(learner);
    ASSERT_EQ(both.size(), 2u);
    for (const int i : {0, 1}) {
      const std::string start = i == 0 ? "cold" : "warm";
      EXPECT_EQ(start_of(both[std::size_t(i)].document), start);
      EXPECT_EQ(both[std::size_t(i)].axes, json({{"/workload/start", start}}));
      EXPECT_EQ(label_of(both[std::size_t(i)]), "start " + start);
      EXPECT_EQ(both[std::size_t(i)].key, key_of(both[std::size_t(i)].document));
    }
    EXPECT_EQ(baseline_of(both[0].document), baseline_of(both[1].document));
  }
  EXPECT_EQ(runs({{"workload", {{"start", "warm"}}}}).size(), 1u) << "the one that is asked for";
  const auto other = runs({{"drafter", {{"name", "ngram"}}}});
  ASSERT_EQ(other.size(), 1u);
  EXPECT_FALSE(other[0].document["workload"].contains("start"));
}

TEST_F(RunsThatLearn, NameNoStateThatNothingBeginsFrom) {
  for (const char* start : {"cold", "warm"})
    EXPECT_TRUE(says(refusal({{"drafter", {{"name", "ngram"}}}, {"workload", {{"start", start}}}}), start, "ngram",
                     "fixed", "leave it out"));
  EXPECT_TRUE(says(refusal({{"workload", {{"start", "hot"}}}}), "/workload/start", "cold, warm, others"));
  foretoken::Run unnamed = runs()[0];
  unnamed.document["workload"].erase("start");
  EXPECT_TRUE(says(to_json(measure_run(unnamed, bench, "", [](double) {})).value("error", ""), "learns",
                   R"("/workload/start": ["cold", "warm"])"));
}

TEST_F(RunsThatLearn, RecordTheirTraceCold) {
  const json traced = {{"trace", "t.jsonl"}};
  const auto both = runs(traced);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_TRUE(both[0].document.contains("trace"));
  EXPECT_FALSE(both[1].document.contains("trace"));
  EXPECT_TRUE(says(refusal({{"trace", "t.jsonl"}, {"workload", {{"start", "warm"}}}}), "cold", "/trace"));
}

// At either temperature the warm one has seen these prompts, and every alternation begins from the same state.
TEST_F(RunsThatLearn, AcceptMoreWarmAndEmitPlainDecodingsOutputFromBothStates) {
  for (const double temperature : {0.0, 1.0}) {
    const auto both = runs({{"sampling", {{"temperature", temperature}}}, {"verifier", {{"name", "coupled"}}}});
    const json cold = measured(both[0]), warm = measured(both[1]);
    EXPECT_GT(tau(warm), temperature == 0 ? 1.3 * tau(cold) : tau(cold)) << temperature;
    for (const json& line : {cold, warm}) {
      EXPECT_EQ(line["agreement"], json({{"compared", true}, {"compared_texts", 24}, {"differing_texts", 0}}));
      EXPECT_EQ(line["alternations"]["compared"], false) << "it learns";
      for (const char* count : {"rounds", "accepted", "prefix_rows"})
        EXPECT_EQ(line["repeats"][0]["speculative"][count], line["repeats"][1]["speculative"][count]) << count;
    }
    EXPECT_EQ(warm["repeats"][0]["speculative"]["prefix_rows"], cold["repeats"][0]["speculative"]["prefix_rows"])
        << "no prompt is served from a cache that the baseline has not";
    EXPECT_EQ(warm["repeats"][0]["baseline"]["tokens"], cold["repeats"][0]["baseline"]["tokens"]);
    EXPECT_FALSE(cold["repeats"][0]["speculative"].contains("served_before"));
    const json before = warm["repeats"][0]["speculative"]["served_before"];
    EXPECT_EQ(before["failed"], 0);
    EXPECT_GT(before["seconds"], 0);
    const bool same_output = before["tokens"] == warm["repeats"][0]["speculative"]["tokens"];
    EXPECT_TRUE(same_output || temperature > 0) << "at temperature 0 draws change nothing";
    EXPECT_FALSE(warm["repeats"][0]["baseline"].contains("served_before"));
  }
}

TEST_F(RunsThatLearn, AcceptTheSameFromBothStatesWhereTheyKeepNothing) {
  const auto both = runs({{"drafter", {{"name", "repeats"}}}, {"sampling", {{"temperature", 1}}}});
  const json cold = measured(both[0]), warm = measured(both[1]);
  for (const char* count : {"tokens", "rounds", "drafted", "tested", "accepted"})
    EXPECT_EQ(cold["repeats"][0]["speculative"][count], warm["repeats"][0]["speculative"][count]) << count;
}

// A sentence of the drafter about what no figure shows stands in the measurement.
TEST_F(RunsThatLearn, HaveTheDraftersNotice) {
  const auto notices = [&](const json& options) {
    json drafter = {{"name", "suffix"}};
    drafter.update(options);
    json all = json::array();
    const json line = measured(runs({{"drafter", drafter}})[0]);
    for (const json& repeat : line["repeats"]) {
      all.push_back(repeat["speculative"].value("notice", "none"));
      EXPECT_FALSE(repeat["baseline"].contains("notice"));
    }
    return all;
  };
  EXPECT_EQ(notices(json::object()), json({"none", "none"}));
  for (const json& notice : notices({{"tokens", 20}}))
    EXPECT_TRUE(says(notice, "evicted", "tokens of the oldest outputs", "raise 'tokens'"));
}

TEST_F(RunsThatLearn, MeetOtherDrawsBefore) {
  json changes = {{"sampling", {{"temperature", 1}, {"samples", 2}}}, {"workload", {{"repeats", 3}, {"limit", 2}}}};
  const std::vector<Job> jobs = jobs_of(runs(changes)[1].document, bench, ""),
                         before = jobs_before(runs(changes)[1].document, jobs, bench, "");
  ASSERT_EQ(jobs.size(), before.size());
  std::set<std::uint64_t> streams;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    streams.insert({jobs[i].request.stream, before[i].request.stream});
    EXPECT_EQ(before[i].request.prompt, jobs[i].request.prompt);
    EXPECT_EQ(before[i].request.limits.max_new_tokens, jobs[i].request.limits.max_new_tokens);
  }
  EXPECT_EQ(streams.size(), 2 * jobs.size());
}

// Every alternation begins with what the same prompts left, and measures others.
TEST_F(RunsThatLearn, KnowOtherPromptsAlone) {
  const json others{{"workload", {{"start", "others"}, {"skip", 7}, {"limit", 12}}}};
  const json document = runs(others)[0].document;
  const std::vector<Job> jobs = jobs_of(document, bench, ""), before = jobs_before(document, jobs, bench, "");
  ASSERT_EQ(before.size(), 7u);
  ASSERT_EQ(jobs.size(), 12u);
  std::set<std::uint64_t> streams;
  std::set<int> prompts;
  for (const auto* list : {&before, &jobs})
    for (const Job& job : *list) prompts.insert(job.prompt), streams.insert(job.request.stream);
  EXPECT_EQ(prompts.size(), 19u) << "no prompt is served twice";
  EXPECT_EQ(streams.size(), 19u) << "nor are draws met again";
  EXPECT_TRUE(jobs_before(runs()[0].document, jobs, bench, "").empty()) << "cold";
  const json line = measured(runs(others)[0]);
  for (const json& repeat : line["repeats"]) {
    EXPECT_GT(repeat["speculative"]["served_before"]["tokens"], 0);
    EXPECT_FALSE(repeat["baseline"].contains("served_before"));
  }
  for (const char* count : {"rounds", "drafted", "accepted"})
    EXPECT_EQ(line["repeats"][0]["speculative"][count], line["repeats"][1]["speculative"][count]) << count;
}

TEST_F(RunsThatLearn, RefuseToKnowOthersWhereNoneAreLeftOutOrOneComesAgain) {
  const auto others = [](json changes) {
    changes["workload"].update({{"start", "others"}}, true);
    return changes;
  };
  EXPECT_TRUE(says(refusal(others(json::object())), "\"others\"", "'/workload/skip' leaves out no prompts"));
  EXPECT_TRUE(
      says(refusal(others({{"workload", {{"skip", 2}, {"repeats", 2}}}})), "served twice", "/workload/repeats"));
  EXPECT_TRUE(says(refusal(others({{"workload", {{"skip", 2}}}, {"sampling", {{"samples", 2}}}})), "served twice",
                   "/sampling/samples"));
  EXPECT_TRUE(says(refusal(others({{"workload", {{"skip", 2}}}, {"trace", "t.jsonl"}})), "cold", "/trace"));
  EXPECT_TRUE(says(refusal(others({{"drafter", {{"name", "ngram"}}}, {"workload", {{"skip", 2}}}})), "leave it out"));
  const TemporaryFolder folder;
  std::ofstream file(folder.path() / "p.jsonl");
  for (int i = 0; i < 14; ++i) file << json{{"prompt", "number " + std::to_string(i % 13)}} << '\n';
  file.close();
  const json twice =
      others({{"workload", {{"skip", 2}, {"limit", 12}, {"prompts", (folder.path() / "p.jsonl").string()}}}});
  EXPECT_TRUE(says(to_json(measure_run(runs(twice)[0], bench, "", [](double) {})).value("error", ""),
                   "the prompts 1 and 14 of the workload begin equally", "take one of them out"));
}

// Draws nothing and says what it was made with.
class Tells final : public Drafter {
 public:
  explicit Tells(Backend& backend) : backend_(backend) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override { return rooted(backend_, requests); }
  std::string notice() const override { return "knew this when it was made"; }

 private:
  Backend& backend_;
};

TEST_F(RunsThatLearn, TellANoticeThatWasThereWhenTheMeasurementBegan) {
  Registries registries = with_learners();
  registries.drafters.add(
      "tells", entry_that<Drafter>(states(Needs{.proposes = {Drawn::certain}, .learns = true}),
                                   [](const json&, Host& host) { return std::make_unique<Tells>(host.backend()); }));
  Workbench told(registries);
  std::ostringstream text;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("notices", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)));
  const auto both =
      expand(nlohmann::ordered_json(document({{"drafter", {{"name", "tells"}}}})), {}, told.registries(), "doc");
  for (const foretoken::Run& run : both) {
    const json line = to_json(measure_run(run, told, "", [](double) {}));
    for (const json& repeat : line["repeats"])
      EXPECT_EQ(repeat["speculative"].value("notice", ""), "knew this when it was made");
  }
  spdlog::set_default_logger(before);
  const std::string all = text.str();
  int count = 0;
  for (std::size_t at = 0; (at = all.find("knew this", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 4) << "once for each alternation of each run, not for what is not measured: " << all;
}

TEST_F(RunsThatLearn, GoOnWhereASweepWasStopped) {
  const TemporaryFolder folder;
  const auto both = runs({{"workload", {{"max_new_tokens", 4}}}});
  const SweepOptions options{folder.path() / "r.jsonl", "", "test", true, true};
  ResultsFile file(options.results);
  Unfinished unfinished(options.results);
  json first = to_json(measure_alternation(both[1], 0, prepare(both[1], bench, ""), bench, "", [](double) {}, nullptr));
  first["together"] = 2;
  unfinished.add(first);
  Rounds rounds(both, bench, options, file, unfinished);
  rounds.measure([](const foretoken::Run&) {},
                 [](const foretoken::Run&, const std::string& error) { ADD_FAILURE() << error; });
  std::vector<json> lines;
  for (const Result& result : load_results(options.results)) lines.push_back(to_json(result));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["key"], both[1].key);
  EXPECT_EQ(lines[1]["repeats"][0]["speculative"], first["speculative"]["record"]) << "as it was measured then";
  EXPECT_TRUE(lines[1]["repeats"][1]["speculative"].contains("served_before"));
  for (const json& repeat : lines[0]["repeats"]) EXPECT_FALSE(repeat["speculative"].contains("served_before"));
}

// Two cold ones take as long as four sides, one warm one as three.
TEST_F(RunsThatLearn, CountTheRequestsBeforeAsWork) {
  for (int length = 1; length <= 8; ++length) {
    const auto both = runs({{"policy", {{"length", length}}}}),
               other = runs({{"policy", {{"length", length}}}, {"sampling", {{"seed", 2}}}});
    const auto alone = runs_of({1, 2}, {both[0], other[0], both[1]}, false);
    ASSERT_EQ(alone.size(), 1u) << length;
    EXPECT_EQ(alone[0].key, both[1].key) << length;
  }
}

}  // namespace
}  // namespace foretoken::test

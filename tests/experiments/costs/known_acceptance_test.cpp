// What is known of acceptance before a run: numbers, counts of prompts, results of the same pair; what is refused.
#include "experiments/costs/known_acceptance.h"

#include <cstdio>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "experiments/report/results.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::says;
using test::sentence_of;

const Budget kChain{.nodes = 3, .depth = 2};

class ResultsFile : public testing::Test {
 protected:
  // The lines as a file of results.
  std::string written(const std::vector<json>& lines) const {
    std::ofstream out(file_);
    for (const json& line : lines) {
      json whole = test::whole(line);
      whole["key"] = key_of(whole["run"]);
      out << whole.dump() << "\n";
    }
    return file_;
  }
  void TearDown() override { std::remove(file_.c_str()); }
  std::string file_ = testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
};

TEST(KnownAcceptances, AreNumbersByLevel) {
  const json run = test::run("draft_model", 4);
  const RoundRates one = AcceptanceSource::read("0.8").of(run, kChain)->rates(0);
  EXPECT_EQ(one.accept_at(0), 0.8);
  EXPECT_EQ(one.accept_at(5), 0.8);
  EXPECT_EQ(one.drafted_at(3), 1);
  const RoundRates several = AcceptanceSource::read("0.8,0.5").of(run, kChain)->rates(7);
  EXPECT_EQ(several.accept_at(0), 0.8);
  EXPECT_EQ(several.accept_at(1), 0.5);
  EXPECT_EQ(several.accept_at(2), 0.5);
  EXPECT_FALSE(AcceptanceSource::read("").of(run, kChain));
  for (const char* wrong : {"1.5", "-0.1", "0.8,", "0.8;0.5", "nan", "no/such/file.jsonl"})
    EXPECT_TRUE(says(sentence_of([&] { (void)AcceptanceSource::read(wrong); }),
                     std::string("--acceptance '") + wrong + "' is no file, and no number from 0 to 1"));
}

TEST(KnownAcceptances, OfPromptsCountEachAsOftenAsItWasDrawn) {
  const KnownAcceptance known(
      {{.reached = {100, 50}, .accepted = {50, 40}}, {.reached = {100, 90}, .accepted = {90, 9}}}, {1}, "F");
  const RoundRates all = known.rates(0);
  EXPECT_DOUBLE_EQ(all.accept_at(0), 140.0 / 200);
  EXPECT_DOUBLE_EQ(all.accept_at(1), 49.0 / 140);
  std::set<double> seen;
  for (std::uint32_t resample = 1; resample <= 40; ++resample) {
    seen.insert(known.rates(resample).accept_at(0));
    EXPECT_EQ(known.rates(resample).accept_at(0), known.rates(resample).accept_at(0));
  }
  EXPECT_EQ(seen, (std::set<double>{0.5, 0.7, 0.9})) << "one prompt twice, or each once";
}

TEST(KnownAcceptances, OfSeldomReachedLevelsAreThoseOfTheLevelBefore) {
  const KnownAcceptance known({{.reached = {200, 20}, .accepted = {20, 20}}}, {1}, "F");
  EXPECT_DOUBLE_EQ(known.rates(0).accept_at(1), 0.1);
  EXPECT_TRUE(says(sentence_of([] { KnownAcceptance({{.reached = {29}, .accepted = {1}}}, {1}, "F"); }),
                   "F has 29 rounds of such drafts"));
}

TEST_F(ResultsFile, RunsOfThePairCountTogetherWhateverTheirBatchAndLength) {
  json chosen = test::swept_line("draft_model", 3, 0, 4, 1.5);
  for (json& repeat : chosen["repeats"]) repeat["speculative"]["accepted_at"] = {30, 15, 15};
  const std::string file = written({test::swept_line("draft_model", 1, 0, 1, 1.5), chosen,
                                    test::swept_line("ngram", 2, 0, 1, 1.5),          // another drafter
                                    test::swept_line("draft_model", 2, 1, 1, 1.5)});  // another temperature
  const RoundRates rates = AcceptanceSource::read(file).of(made(chosen).run, kChain)->rates(0);
  EXPECT_DOUBLE_EQ(rates.accept_at(0), (60.0 + 30) / 180);
  EXPECT_DOUBLE_EQ(rates.accept_at(1), 15.0 / 90);
  EXPECT_EQ(rates.drafted_at(2), 1);
}

// A lookup that finds something in half of the rounds.
TEST_F(ResultsFile, DraftersThatDoNotAlwaysDraftAreKnownByRounds) {
  json line = test::swept_line("ngram", 2, 0, 1, 1.5);
  for (json& repeat : line["repeats"])
    repeat["speculative"].update(
        {{"drafted_at", {60, 30}}, {"tested_at", {60, 24}}, {"accepted_at", {48, 24}}, {"no_draft", {{"none", 60}}}});
  const RoundRates rates = AcceptanceSource::read(written({line})).of(made(line).run, kChain)->rates(0);
  EXPECT_DOUBLE_EQ(rates.drafted_at(0), 0.5);
  EXPECT_DOUBLE_EQ(rates.drafted_at(1), 0.25);
  EXPECT_DOUBLE_EQ(rates.accept_at(0), 48.0 / 120);
  EXPECT_DOUBLE_EQ(rates.accept_at(1), 24.0 / 48);
}

// Counts of a request end at its deepest accepted level, and are empty where there is none; its last round may have had
// no room for a draft.
TEST_F(ResultsFile, RoundsAndLevelsWithoutSuccessCountToo) {
  json line = test::swept_line("ngram", 2, 0, 1, 1.5);
  for (json& repeat : line["repeats"]) {
    json& side = repeat["speculative"];
    side.update({{"drafted_at", {40, 20}}, {"tested_at", {36, 18}}, {"accepted_at", {18}}});
    side["no_draft"] = {{"nothing", 74}, {"end", 6}};
    for (json& request : side["requests"]) {
      const bool first = request["prompt"] == 0;
      request["tested_at"] = first ? json{18, 18} : json::array();
      request["accepted_at"] = first ? json{18} : json::array();
    }
  }
  const RoundRates rates = AcceptanceSource::read(written({line})).of(made(line).run, kChain)->rates(0);
  EXPECT_DOUBLE_EQ(rates.accept_at(0), 18.0 / (120 - 6));
  EXPECT_EQ(rates.accept_at(1), 0);
}

TEST_F(ResultsFile, TreesOfOtherSizesCountApart) {
  std::vector<json> lines;
  for (const int nodes : {3, 7, 13}) {
    json& line = lines.emplace_back(test::swept_line("draft_model", 2, 0, nodes, 1.5));  // the batch makes another key
    line["run"]["policy"]["nodes"] = nodes;
    for (json& repeat : line["repeats"]) repeat["speculative"]["accepted_at"] = {5 * nodes, 5};
  }
  const std::string file = written(lines);
  const json run = made(lines[0]).run;
  const auto first = [&](const Budget& most) {
    return AcceptanceSource::read(file).of(run, most)->rates(0).accept_at(0);
  };
  EXPECT_DOUBLE_EQ(first(kChain), 15.0 / 90) << "a tree without siblings is a chain";
  EXPECT_DOUBLE_EQ(first({.nodes = 7, .depth = 3}), 35.0 / 90);
  EXPECT_DOUBLE_EQ(first({.nodes = 13, .depth = 2}), 65.0 / 90);
  EXPECT_TRUE(says(sentence_of([&] { (void)first({.nodes = 9, .depth = 2}); }), "the last differs in /nodes"));
}

TEST_F(ResultsFile, ResultsOfAnotherPairAreRefused) {
  const std::string file = written({test::swept_line("ngram", 2, 0, 1, 1.5)});
  const json run = made(test::swept_line("draft_model", 2, 0, 1, 1.5)).run;
  EXPECT_TRUE(says(sentence_of([&] { (void)AcceptanceSource::read(file).of(run, kChain); }),
                   file + " has no run of the policy 'fixed' like this one; the last differs in /drafter/name"));
}

}  // namespace
}  // namespace foretoken

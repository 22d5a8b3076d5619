// Draft lengths by batch from result lines made by hand: which length is chosen, what the file says, what is refused.
#include "experiments/report/tune.h"

#include <gtest/gtest.h>

#include "drafters/drafters.h"
#include "experiments/session/measured_pair.h"
#include "kernels/backend.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::says;

// A length with a speedup at a batch: equal prompts vary little, so that 5 % are a clear difference.
json tuned_line(int batch, int length, double gain) {
  json line = test::swept_line("draft_model", length, 0, batch, gain);
  line["run"]["workload"]["limit"] = 24 * batch;  // a larger batch needs more prompts
  return line;
}

Tuned tuned(const std::vector<json>& lines, const std::string& format = "terminal") {
  return tune(made(lines), {format, 118});
}
std::string tuning_refusal(const std::vector<json>& lines) {
  return test::sentence_of([&] { (void)tuned(lines); });
}

TEST(Tune, TakesTheFastestLengthOfEachBatch) {
  const json document = tuned({tuned_line(1, 2, 1.3), tuned_line(1, 4, 1.6), tuned_line(1, 8, 1.4),
                               tuned_line(4, 2, 1.2), tuned_line(4, 8, 0.7)})
                            .document;
  EXPECT_EQ(document["lengths"], (json{{1, 4}, {4, 2}}));
  EXPECT_EQ(document["choices"][0]["candidates"], 3);
  EXPECT_NEAR(document["choices"][0]["speedup"]["value"], 1.6, 0.02);
  EXPECT_LT(document["choices"][0]["speedup"]["low"], 1.6);
}

TEST(Tune, TakesTheShortestOfThoseThatAreAsGood) {
  EXPECT_EQ(tuned({tuned_line(1, 8, 1.6), tuned_line(1, 3, 1.599), tuned_line(1, 2, 1.4)}).document["lengths"],
            (json{{1, 3}}));
  const json clearly = tuned({tuned_line(1, 8, 1.6), tuned_line(1, 2, 1.5)}).document;
  EXPECT_EQ(clearly["lengths"], (json{{1, 8}}));
}

// Alternations that differ by a third: no length is clearly slower, but one that is 10 % slower is not close either.
TEST(Tune, TakesNoLengthThatIsFarFromTheFastestBecauseTheMachineIsNoisy) {
  std::vector<json> lines{tuned_line(1, 8, 1.6), tuned_line(1, 2, 1.44), tuned_line(1, 4, 1.59)};
  for (json& line : lines)
    for (json& request : line["repeats"][1]["speculative"]["requests"])
      request["share_seconds"] = 1.5 * request["share_seconds"].get<double>();
  for (json& line : lines) {
    json& side = line["repeats"][1]["speculative"];
    side["seconds"] = 1.5 * side["seconds"].get<double>();
  }
  EXPECT_EQ(tuned(lines).document["lengths"], (json{{1, 4}}));
}

TEST(Tune, DraftsNothingWhereNothingPays) {
  const Tuned found = tuned({tuned_line(1, 2, 1.5), tuned_line(16, 2, 0.8), tuned_line(16, 4, 0.6)});
  EXPECT_EQ(found.document["lengths"], (json{{1, 2}, {16, 0}}));
  EXPECT_EQ(found.document["choices"][1]["speedup"]["value"], 1);
  EXPECT_EQ(found.document["choices"][1]["fastest"], 2);
  EXPECT_TRUE(says(found.text, "16       0"));
}

TEST(Tune, OneAlternationSaysNothingOfCloseLengths) {
  std::vector<json> lines{tuned_line(1, 8, 1.6), tuned_line(1, 2, 1.599)};
  for (json& line : lines) line["repeats"].erase(1);
  EXPECT_EQ(tuned(lines).document["lengths"], (json{{1, 8}}));
}

TEST(Tune, OtherPoliciesTreesFailedAndUnfinishedRunsAreNoCandidates) {
  json tree = tuned_line(1, 4, 1.9), sure = tuned_line(1, 5, 1.9), other = tuned_line(1, 6, 1.9),
       failed = tuned_line(1, 7, 1.9), none = tuned_line(1, 2, 1.9);
  tree["run"]["policy"]["nodes"] = 9;
  sure["run"]["policy"]["confidence"] = 0.4;
  other["run"]["policy"] = {{"name", "goodput"}};
  failed["error"] = "no";
  failed["repeats"] = json::array();
  none["run"]["policy"]["length"] = 0;
  none["key"] = "none";
  EXPECT_EQ(tuned({tree, sure, other, failed, none, tuned_line(1, 3, 1.2)}).document["lengths"], (json{{1, 3}}));
  EXPECT_TRUE(says(tuning_refusal({tree, sure, other, failed, none}), "no finished run of the policy 'fixed'"));
}

TEST(Tune, RunsThatDifferInMoreAndSeveralMachinesAreRefused) {
  EXPECT_TRUE(says(tuning_refusal({tuned_line(1, 2, 1.5), test::swept_line("ngram", 2, 0, 4, 1.5)}),
                   "the results mix runs that differ in /drafter/name; choose with --where"));
  EXPECT_TRUE(says(tuning_refusal({tuned_line(1, 2, 1.5), test::swept_line("draft_model", 2, 1, 1, 1.5)}),
                   "differ in /sampling/temperature"));
  json there = tuned_line(1, 4, 1.5);
  there["machine"]["cpu"] = "another CPU";
  EXPECT_TRUE(says(tuning_refusal({tuned_line(1, 2, 1.5), there}), "of several machines"));
}

TEST(Tune, TheFileSaysFromWhatItWasMade) {
  EXPECT_EQ(tuned({tuned_line(1, 2, 1.5), tuned_line(1, 4, 1.6)}).document["made_from"], (json{{"measured_runs", 2}}));
}

TEST(Tune, AChoiceIsTheShortestThatIsCloseAndPays) {
  const auto at = [](int length, double speedup) {
    return TunedCandidate{.length = length, .speedup = {speedup, 0.9 * speedup, 1.1 * speedup}};
  };
  EXPECT_EQ(tuned_choice(1, at(8, 2), {at(2, 1.95), at(4, 1.97), at(6, 1.99)}, 4).chosen.length, 4);
  EXPECT_EQ(tuned_choice(1, at(8, 1.019), {}, 1).chosen.length, 0);
  EXPECT_EQ(tuned_choice(1, at(8, 1.021), {}, 1).chosen.length, 8);
  EXPECT_EQ(tuned_choice(1, {.length = 8, .speedup = {1.01, 1.005, 1.015}}, {}, 1).chosen.length, 8)
      << "clearly faster";
  EXPECT_EQ(tuned_choice(1, at(2, 1.031), {at(1, 1.012)}, 2).chosen.length, 2) << "close, but does not pay";
  EXPECT_EQ(tuned_choice(1, at(3, 1.031), {at(1, 1.012), at(2, 1.022)}, 3).chosen.length, 2);
}

TEST(Tune, EveryFormatHasTheChoice) {
  const std::vector<json> lines{tuned_line(1, 2, 1.5)};
  EXPECT_TRUE(says(tuned(lines, "markdown").text, "| 1 | 2 | 1.50 ["));
  EXPECT_TRUE(says(tuned(lines, "csv").text, "batch,length,speedup,speedup_low,speedup_high,fastest"));
  EXPECT_EQ(json::parse(tuned(lines, "json").text), tuned(lines).document);
}

class TunedTables : public testing::Test {
 protected:
  std::unique_ptr<LengthPolicy> policy(const json& file) {
    return table().make({{"lengths", nullptr}, {"file", file}, {"width", 1}}, host_);
  }
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  PagePool pool_{*backend_, 64, 1};
  ModelInfo target_;
  Host host_{*backend_, pool_, target_, {}, false};
};

TEST_F(TunedTables, TheirFileIsThePolicysTable) {
  const json document = tuned({tuned_line(1, 4, 1.6), tuned_line(16, 2, 0.8)}).document;
  for (const auto& [batch, length] : {std::pair{1, 4}, {15, 4}, {16, 0}}) {
    const std::vector<PastOnly> past(1, {.batch = batch, .room = {kMaxNodes, kMaxPath}});
    EXPECT_EQ(policy(document)->budgets(past).at(0).depth, length) << batch;
  }
  EXPECT_TRUE(says(test::sentence_of([&] { (void)policy({{"kind", "step costs"}}); }),
                   "has no \"lengths\", so `foretoken tune` did not write it"));
  EXPECT_TRUE(says(test::sentence_of([&] { (void)policy({{"lengths", {{4, 2}, {1, 2}}}}); }),
                   "batches that do not rise at [1,2]"));
}

TEST(MeasuredPair, IsComparedByTheLastPartsOfPaths) {
  const json run = test::run("draft_model", 2);
  json moved = pair_of(run);
  moved["target"]["model"] = "/elsewhere/target";
  EXPECT_EQ(test::sentence_of([&] { expect_pair(moved, run, "F"); }), "");
  EXPECT_EQ(test::sentence_of([&] { expect_pair({{"lengths", 3}}, run, "F"); }), "") << "it names no models";
  moved["target"]["model"] = "/elsewhere/another";
  EXPECT_EQ(test::sentence_of([&] { expect_pair(moved, run, "F"); }),
            "F was measured with '/target/model' \"/elsewhere/another\", and this run has "
            "\"experiments/models/target\"; name a file that was made for these models");
  json other = pair_of(run);
  other["drafter"]["name"] = "ngram";
  EXPECT_TRUE(says(test::sentence_of([&] { expect_pair(other, run, "F"); }), "F was measured with '/drafter/name'"));
}

}  // namespace
}  // namespace foretoken

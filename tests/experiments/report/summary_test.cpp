// A result line with figures computed by hand, and malformed lines.
#include "experiments/report/summary.h"

#include <cmath>
#include <tuple>

#include <gtest/gtest.h>

#include "experiments/report/report.h"
#include "kernels/error.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::says;
using test::worked_line;

TEST(Summary, AnswersWorkedByHand) {
  const Summary s = summarize(worked_line());
  ASSERT_EQ(s.error, "");
  EXPECT_EQ(s.repeats, 2);
  EXPECT_EQ(s.prompts, 2);
  EXPECT_DOUBLE_EQ(s.alpha.value, 10.0 / 15);
  EXPECT_DOUBLE_EQ(s.accept_rate.value, 10.0 / 20);
  EXPECT_DOUBLE_EQ(s.tau.value, 2);
  EXPECT_DOUBLE_EQ(s.tokens_per_second.value, 10);
  EXPECT_DOUBLE_EQ(s.baseline.tokens_per_second, 6.25);
  EXPECT_DOUBLE_EQ(s.speedup.value, 1.6);
  // 36 tokens after the first in 3.6 s, against 36 in 7.2 s.
  EXPECT_DOUBLE_EQ(s.decode_speedup.value, 2);
  EXPECT_NEAR(s.speculative.ms_per_token, 100, 1e-9);
  EXPECT_NEAR(s.speculative.ttft_ms, 20, 1e-9);  // median of 10, 30, 10, 30
  EXPECT_NEAR(s.baseline.ttft_ms, 15, 1e-9);
  EXPECT_TRUE(s.compared);
  EXPECT_EQ(s.compared_texts, 2);
}

// Sampled outputs differ in length, so each side counts its own tokens.
TEST(Summary, SidesOfDifferentLengthsAreComparedByTheirRates) {
  json line = worked_line();
  for (json& repeat : line["repeats"]) {
    repeat["baseline"]["requests"][0]["tokens"] = 24;
    repeat["baseline"]["tokens"] = 32;
  }
  const Summary s = summarize(line);
  EXPECT_DOUBLE_EQ(s.speedup.value, 1.0);  // 20 tokens in 2 s, 32 in 3.2 s
  EXPECT_DOUBLE_EQ(s.categories[0].speedup.value, 1.0);
  EXPECT_DOUBLE_EQ(s.baseline.tokens_per_second, 10);
}

// The first round emits the accepted tokens of its draft at once; they take no decoding time.
TEST(Summary, DecodingBeginsAfterTheFirstRound) {
  json line = worked_line();
  for (json& repeat : line["repeats"]) {
    repeat["speculative"]["requests"][0]["first_tokens"] = 3;
    repeat["speculative"]["requests"][1]["first_tokens"] = 1;
  }
  const Summary s = summarize(line);
  // 2 x (9 + 7) tokens in 3.6 s.
  EXPECT_NEAR(s.speculative.decode_tokens_per_second, 32 / 3.6, 1e-9);
  EXPECT_NEAR(s.speculative.ms_per_token, 3600.0 / 32, 1e-9);
  EXPECT_NEAR(s.decode_speedup.value, 2 * 32.0 / 36, 1e-9);
}

TEST(Summary, TheoryWorkedByHand) {
  const TheoryFigures theory = summarize(worked_line()).theory;
  EXPECT_EQ(theory.draft_length, 2);
  EXPECT_TRUE(theory.full_length);
  EXPECT_NEAR(theory.tau, 19.0 / 9, 1e-12);  // 1 + 2/3 + 4/9
  EXPECT_NEAR(theory.plain_ms, 150, 1e-9);   // 3 s / 20 rounds
  EXPECT_NEAR(theory.draft_ms, 20, 1e-9);    // .4 s / 20 tokens
  EXPECT_NEAR(theory.verify_ms, 100, 1e-9);
  EXPECT_NEAR(theory.cost, 20.0 / 150, 1e-12);
  EXPECT_NEAR(theory.speedup, 19.0 / 9 * 150 / (2 * 20 + 100), 1e-12);
}

// Dearer verification predicts a smaller speedup; the unit is plain decoding's forward.
TEST(Summary, TheoryKnowsWhatVerificationCosts) {
  json line = worked_line();
  for (json& repeat : line["repeats"]) repeat["speculative"]["phases"]["target_forward"] = 3.0;
  const TheoryFigures theory = summarize(line).theory;
  EXPECT_NEAR(theory.cost, 20.0 / 150, 1e-12);
  EXPECT_NEAR(theory.speedup, 19.0 / 9 * 150 / (2 * 20 + 300), 1e-12);
}

// Drafts of 2 in half of the rounds, none in the others: tau is 1 + .5 alpha + .5 alpha^2.
TEST(Summary, TheoryOfShortDraftsCountsTheLengthsThatWereDrafted) {
  json line = worked_line();
  for (json& repeat : line["repeats"]) {
    json& fast = repeat["speculative"];
    fast["drafted_at"] = {5, 5};
    fast["drafted"] = 10;
    for (json& request : fast["requests"]) request["drafted"] = 5;
  }
  const Summary s = summarize(line);
  ASSERT_EQ(s.error, "");
  EXPECT_FALSE(s.theory.full_length);
  EXPECT_DOUBLE_EQ(s.theory.mean_drafted, 1);
  EXPECT_NEAR(s.theory.tau, 1 + 0.5 * 2 / 3 + 0.5 * 4 / 9, 1e-12);
  EXPECT_NEAR(s.theory.cost, 40.0 / 150, 1e-12);
  EXPECT_NEAR(s.theory.speedup, s.theory.tau * 150 / (40 + 100), 1e-12);
}

// Of 10 drafted levels and 15 drafted nodes a repeat, some were siblings; the theory covers chains only.
TEST(Summary, TheoryIsSilentAboutTreesThatBranch) {
  json line = worked_line();
  for (json& repeat : line["repeats"]) {
    repeat["speculative"]["drafted_at"] = {5, 5};
    repeat["speculative"]["drafted"] = 15;
  }
  const Summary s = summarize(line);
  ASSERT_EQ(s.error, "");
  EXPECT_TRUE(s.theory.branched);
  EXPECT_TRUE(std::isnan(s.theory.tau) && std::isnan(s.theory.speedup));
  EXPECT_TRUE(to_json(s)["figures"]["theory"]["tau"].is_null());
  EXPECT_FALSE(summarize(worked_line()).theory.branched);
}

TEST(Summary, TreesThatWereCutAreCounted) {
  json line = worked_line();
  EXPECT_EQ(summarize(line).speculative.cut, 0);
  for (json& repeat : line["repeats"]) repeat["speculative"]["cut"] = 3;
  EXPECT_EQ(summarize(line).speculative.cut, 6);
}

TEST(Summary, PositionsWorkedByHand) {
  const Summary s = summarize(worked_line());
  ASSERT_EQ(s.positions.size(), 2u);
  EXPECT_DOUBLE_EQ(s.positions[0].rate, 0.7);
  EXPECT_DOUBLE_EQ(s.positions[1].rate, 0.6);
  EXPECT_DOUBLE_EQ(s.positions[0].reached, 0.7);
  EXPECT_DOUBLE_EQ(s.positions[1].reached, 0.3);
  EXPECT_EQ(s.positions[1].accepted, 6);  // over both repeats
  EXPECT_EQ(s.histogram, (std::vector<double>{6, 8, 6}));
}

TEST(Summary, CategoriesAndPromptsStandBeside) {
  const Summary s = summarize(worked_line());
  ASSERT_EQ(s.categories.size(), 2u);
  EXPECT_EQ(s.categories[0].name, "story");
  EXPECT_DOUBLE_EQ(s.categories[0].alpha.value, 7.0 / 8);
  EXPECT_DOUBLE_EQ(s.categories[0].tau.value, 12.0 / 5);
  EXPECT_DOUBLE_EQ(s.categories[0].speedup.value, 2);
  EXPECT_DOUBLE_EQ(s.categories[1].speedup.value, 1.2);
  ASSERT_EQ(s.by_prompt.size(), 2u);
  EXPECT_DOUBLE_EQ(s.by_prompt[1].alpha, 3.0 / 7);
  EXPECT_DOUBLE_EQ(s.by_prompt[1].speedup, 1.2);
  // A ratio of totals is not the mean of ratios: (2 + 1.2) / 2 happens to be 1.6 for equal seconds, alpha shows the
  // difference.
  EXPECT_NE(s.alpha.value, (7.0 / 8 + 3.0 / 7) / 2);
}

TEST(Summary, PhasesAndOverhead) {
  const Summary s = summarize(worked_line());
  EXPECT_NEAR(s.speculative.phases.total, 2 * 1.54, 1e-12);
  EXPECT_NEAR(s.speculative.overhead, 0.1 / 1.1, 1e-12);  // the total is 1.1 times the forwards
}

TEST(Summary, NoDraftsMeansNoAcceptance) {
  json line = worked_line();
  line["run"]["drafter"]["name"] = "none";
  for (json& repeat : line["repeats"]) repeat["speculative"] = repeat["baseline"];
  const Summary s = summarize(line);
  ASSERT_EQ(s.error, "");
  EXPECT_FALSE(s.alpha.known());
  EXPECT_DOUBLE_EQ(s.tau.value, 1);
  EXPECT_DOUBLE_EQ(s.theory.tau, 1);
  EXPECT_DOUBLE_EQ(s.theory.speedup, 1);
  EXPECT_DOUBLE_EQ(s.speedup.value, 1);
  EXPECT_TRUE(to_json(s)["figures"]["alpha"]["value"].is_null());
}

TEST(Summary, RequestsOfOnePromptAreOnePrompt) {
  json line = worked_line();
  for (json& repeat : line["repeats"])
    for (const char* side : {"speculative", "baseline"})
      for (json& request : repeat[side]["requests"]) request["prompt"] = 0;
  const Summary s = summarize(line);
  ASSERT_EQ(s.error, "");
  EXPECT_EQ(s.prompts, 1);
  EXPECT_DOUBLE_EQ(s.speedup.value, 1.6);
  EXPECT_TRUE(to_json(s)["figures"]["alpha"]["low"].is_null()) << "of one prompt";
}

TEST(Summary, FailedRunKeepsItsSentence) {
  json line = worked_line();
  line.erase("repeats");
  line["error"] = "the draft has another vocabulary";
  const Summary s = summarize(line);
  EXPECT_EQ(s.error, "the draft has another vocabulary");
  EXPECT_FALSE(to_json(s).contains("figures"));
}

TEST(Summary, APromptWithAFailedRequestIsInNoFigureOfEitherSide) {
  const Summary s = summarize(test::line_with_a_failure()), without = summarize(worked_line());
  ASSERT_EQ(s.error, "");
  EXPECT_EQ(std::tuple(s.failed_requests, s.left_out, s.prompts), std::tuple(1, 1, 2));
  EXPECT_DOUBLE_EQ(s.speedup.value, without.speedup.value);
  EXPECT_DOUBLE_EQ(s.decode_speedup.value, without.decode_speedup.value);
  for (const auto side : {&Summary::speculative, &Summary::baseline})
    for (const auto figure :
         {&SideFigures::tokens, &SideFigures::seconds, &SideFigures::rounds, &SideFigures::drafted,
          &SideFigures::tested, &SideFigures::accepted, &SideFigures::prompt_tokens, &SideFigures::tokens_per_second,
          &SideFigures::decode_tokens_per_second, &SideFigures::ms_per_token, &SideFigures::ttft_ms})
      EXPECT_NEAR(s.*side.*figure, without.*side.*figure, 1e-9);
  // What was only measured of whole sides is unknown.
  EXPECT_TRUE(s.histogram.empty() && s.positions.empty());
  EXPECT_TRUE(std::isnan(s.speculative.phases.total) && std::isnan(s.baseline.overhead));
  EXPECT_TRUE(std::isnan(s.theory.tau) && std::isnan(s.theory.cost) && std::isnan(s.theory.speedup));
  EXPECT_FALSE(s.theory.branched);
  const json figures = to_json(s)["figures"];
  EXPECT_EQ(figures["failed_requests"], 1);
  EXPECT_EQ(json::parse(figures.dump())["speculative"]["phases"]["total"], nullptr);
  EXPECT_EQ(to_json(without)["figures"]["failed_requests"], 0);
}

TEST(Summary, APromptMustBeLeft) {
  json line = test::line_with_a_failure();
  for (json& request : line["repeats"][1]["speculative"]["requests"]) request["finish"] = "failed";
  EXPECT_EQ(damage_of(line), "every prompt has a request that failed");
}

TEST(Summary, LinesThatAreNotWhatTheyShouldBeSayWhy) {
  json other_prompts = worked_line();
  other_prompts["repeats"][1]["baseline"]["requests"][0]["prompt"] = 7;
  EXPECT_NE(summarize(other_prompts).error.find("same prompts"), std::string::npos) << summarize(other_prompts).error;

  json lost_time = worked_line();
  lost_time["repeats"][0]["baseline"]["seconds"] = 9.0;
  EXPECT_NE(summarize(lost_time).error.find("add up"), std::string::npos) << summarize(lost_time).error;

  for (const json& line : {other_prompts, lost_time}) EXPECT_EQ(damage_of(line), summarize(line).error);
  json failed = lost_time;
  failed["error"] = "no";
  EXPECT_EQ(damage_of(failed), "");
  EXPECT_EQ(damage_of(worked_line()), "");
  EXPECT_EQ(damages_of({made(lost_time), made(worked_line())}).size(), 0u) << "the last line of a key counts";
  EXPECT_EQ(damages_of({made(worked_line()), made(lost_time)}).size(), 1u);
}

TEST(Summary, TurnsThatTheContextHadNoRoomForAreCounted) {
  const auto left_out = [](int turns) {
    json found{{"context", 512}, {"turns", json::array()}};
    for (int i = 0; i < turns; ++i) found["turns"].push_back({{"job", i}, {"prompt", 0}, {"turn", i + 1}});
    return found;
  };
  const auto shown = [](const json& one) {
    ShowOptions options;
    options.width = 0;
    return show({one}, options);
  };
  json line = worked_line();
  for (json& repeat : line["repeats"]) repeat["speculative"]["left_out"] = repeat["baseline"]["left_out"] = left_out(1);
  EXPECT_TRUE(says(shown(line), "1 turn left out: the conversation reached the context of 512 tokens"));
  EXPECT_EQ(to_json(summarize(line))["figures"]["turns_left_out"],
            json({{"speculative", 1}, {"baseline", 1}, {"context", 512}}));
  for (json& repeat : line["repeats"]) repeat["baseline"]["left_out"] = left_out(3);
  EXPECT_TRUE(says(shown(line), "1 and, of plain decoding, 3 turns left out")) << "lossy outputs are not as long";
  EXPECT_EQ(to_json(summarize(worked_line()))["figures"]["turns_left_out"],
            json({{"speculative", 0}, {"baseline", 0}, {"context", nullptr}}));
}

TEST(Summary, OfOneKeyTheLastLineCounts) {
  json failed = worked_line(), other = worked_line();
  failed["error"] = "out of memory";
  other["key"] = "00000000000000bb";
  const std::vector<Summary> all = summarize(std::vector<json>{failed, other, worked_line()});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].result.key, "00000000000000bb");
  EXPECT_FALSE(all[1].failed());
}

}  // namespace
}  // namespace foretoken

// Times of steps, fitted to those of machines that are known: what is predicted between and beyond the measured ones,
// and tables that are refused.
#include "drafters/policies/cost_model.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

StepShape shape_of(int batch, int depth, double context_each = 200) {
  return {.batch = batch,
          .depth = depth,
          .levels = double(batch) * depth,
          .rows = double(batch) * (1 + depth),
          .context = context_each * batch};
}

// Rows are free as long as the weights are read, then they are not.
double machine_other(const StepShape& s) {
  return 2e-3 + 1e-5 * s.batch + 1e-4 * std::max(0.0, s.rows - 8) + 1e-7 * s.context;
}
double machine_draft(const StepShape& s) {
  return s.depth == 0 ? 0 : 1e-4 + s.depth * (3e-4 + 1e-5 * s.batch + 2e-8 * s.context);
}

std::vector<CostedStep> measured(const std::vector<int>& batches, const std::vector<int>& depths, double noise = 0) {
  std::vector<CostedStep> steps;
  for (const int batch : batches)
    for (const int depth : depths)
      for (const double context : {50.0, 600.0}) {
        const StepShape s = shape_of(batch, depth, context);
        const double wrong = 1 + noise * std::sin(double(steps.size()) * 12.9898);
        steps.push_back({.shape = s,
                         .seconds = wrong * (machine_other(s) + machine_draft(s)),
                         .draft_seconds = wrong * machine_draft(s),
                         .steps = 16});
      }
  return steps;
}

TEST(NonnegativeFit, FindsWhatIsThereAndNothingNegative) {
  const auto c = nonnegative_least_squares({{1, 0}, {1, 1}, {1, 2}}, {1, 3, 5});
  EXPECT_NEAR(c[0], 1, 1e-6);
  EXPECT_NEAR(c[1], 2, 1e-6);
  const auto falling = nonnegative_least_squares({{1, 0}, {1, 1}, {1, 2}}, {5, 3, 1});
  EXPECT_NEAR(falling[0], 3, 1e-6) << "the mean, since the slope may not be negative";
  EXPECT_EQ(falling[1], 0);
}

TEST(CostModels, PredictStepsThatWereNotMeasured) {
  const CostModel costs(measured({1, 2, 4, 8, 16, 32}, {0, 1, 2, 4, 8}), {});
  for (const int batch : {1, 3, 8, 24})
    for (const int depth : {0, 3, 6})
      for (const double context : {100.0, 400.0}) {
        const StepShape s = shape_of(batch, depth, context);
        EXPECT_NEAR(costs.other(s) / machine_other(s), 1, 0.05) << batch << " " << depth << " " << context;
        if (depth > 0) {
          EXPECT_NEAR(costs.draft(s) / machine_draft(s), 1, 0.05) << batch << " " << depth;
        }
      }
  EXPECT_EQ(costs.draft(shape_of(4, 0)), 0);
}

TEST(CostModels, StateTheErrorOfWhatTheyHaveNotSeen) {
  const CostError exact = CostModel(measured({1, 2, 4, 8, 16}, {0, 1, 2, 4, 8}), {}).cross_validation();
  EXPECT_LT(exact.median, 0.02);
  EXPECT_LT(exact.worst, 0.25) << "the largest is beyond all others where it is left out";
  const CostError noisy = CostModel(measured({1, 2, 4, 8, 16}, {0, 1, 2, 4, 8}, 0.2), {}).cross_validation();
  EXPECT_GT(noisy.median, 0.05);
  EXPECT_GT(noisy.worst, noisy.median);
  EXPECT_TRUE(std::isnan(CostModel(measured({1}, {0}), {}).cross_validation().median));
}

TEST(CostModels, SayWhatIsBeyondTheMeasured) {
  const CostModel costs(measured({1, 4}, {0, 4}), {});
  EXPECT_FALSE(costs.beyond(shape_of(4, 4, 600)));
  EXPECT_TRUE(costs.beyond(shape_of(8, 0, 100)));
  EXPECT_TRUE(costs.beyond(shape_of(1, 5, 100)));
  EXPECT_TRUE(costs.beyond(shape_of(4, 4, 700)));
  EXPECT_TRUE(costs.beyond(shape_of(4, 3))) << "no draft that short";
  EXPECT_FALSE(costs.beyond(shape_of(2, 4)));
  EXPECT_FALSE(costs.beyond(shape_of(1, 0, 20))) << "positions take little";
  EXPECT_GT(costs.seconds(shape_of(16, 4)), 1.5 * costs.seconds(shape_of(4, 4))) << "rows go on to cost";
}

TEST(CostModels, SayWhatIsBelowTheMeasured) {
  const CostModel large(measured({4, 8}, {0, 2, 4}), {});
  EXPECT_TRUE(large.beyond(shape_of(2, 0)));
  EXPECT_TRUE(large.beyond(shape_of(4, 1)));
  EXPECT_FALSE(large.beyond(shape_of(4, 3)));
  std::vector<CostedStep> steps;
  for (const int depth : {0, 2, 4})
    for (const double context : {1000.0, 4000.0}) {
      StepShape s = shape_of(1, depth, context);
      s.rows = 1 + 3 * depth;
      steps.push_back({.shape = s, .seconds = 1e-6 * context + 1e-3 * depth, .draft_seconds = 1e-4 * depth});
    }
  const CostModel wide(steps, {});
  StepShape three = shape_of(1, 2, 2000), chain = three;
  three.rows = 7;
  EXPECT_FALSE(wide.beyond(three));
  EXPECT_TRUE(wide.beyond(chain)) << "narrower trees than were measured";
  three.rows = 11;
  EXPECT_TRUE(wide.beyond(three)) << "wider ones";
  EXPECT_TRUE(wide.beyond(shape_of(1, 0, 500))) << "steps here are positions";
}

TEST(CostModels, OfALookupDraftForNothing) {
  std::vector<CostedStep> steps;
  for (const int batch : {1, 4})
    for (const int depth : {0, 4}) {
      const StepShape s = shape_of(batch, depth);
      steps.push_back({.shape = s, .seconds = machine_other(s), .draft_seconds = 0});
    }
  const CostModel costs(steps, {});
  EXPECT_TRUE(costs.drafts());
  EXPECT_EQ(costs.draft(shape_of(2, 3)), 0);
}

TEST(CostModels, AreTheSameAfterBeingWrittenAndRead) {
  const CostModel costs(measured({1, 4}, {0, 2}), {.seconds = 3e-5, .position_seconds = 4e-8, .draft_seconds = 2e-6});
  const CostModel read = CostModel::read(costs.document(), "F");
  EXPECT_EQ(read.seconds(shape_of(3, 1)), costs.seconds(shape_of(3, 1)));
  EXPECT_EQ(read.prompt().seconds, 3e-5);
  EXPECT_EQ(read.prompt().draft_seconds, 2e-6);
  EXPECT_EQ(read.prompt().position_seconds, 4e-8);
  EXPECT_EQ(read.steps().size(), 8u);
}

TEST(CostModels, RefuseTablesThatAreNone) {
  const auto refusal = [](const std::function<void(json&)>& change) {
    json document{{"kind", "step costs"}, {"schema", 1}, {"steps", {{{"batch", 1}, {"rows", 1}, {"seconds", 0.01}}}}};
    change(document);
    return sentence_of([&] { (void)CostModel::read(document, "F"); });
  };
  EXPECT_EQ(refusal([](json&) {}), "");
  EXPECT_EQ(refusal([](json& d) { d["kind"] = "tuned lengths"; }),
            "F has no \"kind\": \"step costs\"; name a file that `foretoken calibrate` wrote");
  EXPECT_TRUE(says(refusal([](json& d) { d["schema"] = 2; }), "F has the schema 2"));
  EXPECT_TRUE(says(refusal([](json& d) { d.erase("steps"); }), "steps"));
  EXPECT_TRUE(says(refusal([](json& d) { d["steps"][0]["depth"] = 2; }), "needs its \"draft_seconds\""));
  EXPECT_TRUE(says(refusal([](json& d) { d["steps"][0].update({{"depth", 2}, {"draft_seconds", 0.001}}); }),
                   "none of plain decoding"));
  EXPECT_TRUE(says(refusal([](json& d) { d["steps"][0]["seconds"] = -1; }), "number 1"));
  EXPECT_TRUE(says(refusal([](json& d) { d["steps"][0]["batch"] = 2; }), "every sequence of the \"batch\" has a row"));
  EXPECT_TRUE(says(refusal([](json& d) { d["steps"][0]["rows"] = 5; }), "has as many as the \"batch\""));
  EXPECT_TRUE(says(refusal([](json& d) { d["steps"][0]["draft_seconds"] = 0.001; }), "drafts nothing"));
  EXPECT_EQ(refusal([](json& d) { d["steps"][0]["draft_seconds"] = 0; }), "");
  EXPECT_TRUE(says(refusal([](json& d) {
                     d["steps"].push_back({{"batch", 1}, {"rows", 2}, {"depth", 1}, {"seconds", 0.01}});
                     d["steps"][1]["draft_seconds"] = 0.02;
                   }),
                   "more than \"draft_seconds\""));
  EXPECT_TRUE(says(refusal([](json& d) { d["steps"][0]["context"] = -3; }), "not negative"));
  EXPECT_TRUE(says(refusal([](json& d) { d["prompt_token"] = {{"seconds", -1}}; }), "must not be negative"));
  EXPECT_EQ(sentence_of([&] { (void)CostModel::read(json::array(), "F"); }),
            "F has no \"kind\": \"step costs\"; name a file that `foretoken calibrate` wrote");
}

}  // namespace
}  // namespace foretoken::test

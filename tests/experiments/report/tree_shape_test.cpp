// The best tree from result lines made by hand: acceptance, step times, the choice, and what is refused.
#include "drafters/tree_shape.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "drafters/policies/cost_model.h"
#include "experiments/report/report.h"
#include "experiments/report/tree_counts.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::says;

// A run of draft_tree in which a step of `rows` rows and `levels` levels took 10 + rows + 4 levels milliseconds.
json tree_line(const std::string& key, int nodes, const json& offered, const json& accepted) {
  const auto steps = [](double rows, double levels) {
    return json{{"rows", rows},
                {"steps", 20},
                {"sequences", 20},
                {"levels", 20 * levels},
                {"drafted", 20 * (rows - 1)},
                {"draft_seconds", 20 * 0.004 * levels},
                {"seconds", 20 * (0.010 + 0.001 * rows + 0.004 * levels)}};
  };
  json line = test::swept_line("draft_tree", 2, 1, 1, 1.5);
  line["key"] = key;
  line["run"]["drafter"] = {{"name", "draft_tree"}, {"model", "experiments/models/draft"}, {"shape", {2, 1}}};
  line["run"]["policy"] = {{"name", "fixed"}, {"length", 2}, {"nodes", nodes}};
  for (json& repeat : line["repeats"]) {
    repeat["speculative"]["offered_children"] = offered, repeat["speculative"]["accepted_children"] = accepted;
    repeat["speculative"]["steps_of_rows"] = {steps(nodes, 2), steps(nodes - 1, 1)};
    repeat["baseline"]["steps_of_rows"] = {steps(1, 0)};
    repeat["baseline"]["offered_children"] = repeat["baseline"]["accepted_children"] = json::array();
  }
  return line;
}

// Two repeats: at level 1 places of .5 and .2 in 400 rounds, at level 2 .6 in 200, and a second place seen 20 times.
json good_line(const std::string& key = "a", int nodes = 5) {
  return tree_line(key, nodes, {{200, 200}, {100, 10}}, {{100, 40}, {60, 5}});
}

json answer(const std::vector<json>& lines, int nodes, const std::vector<std::string>& where = {}) {
  return json::parse(tree_shape(lines, {nodes, where, "json"}));
}
std::string refusal(const std::vector<json>& lines, const std::vector<std::string>& where = {}) {
  return test::sentence_of([&] { (void)tree_shape(lines, {16, where}); });
}

TEST(TreeShapeReport, ProbabilitiesAreSharesOfRoundsAndPooledWhereTheyAreFew) {
  const json found = answer({good_line()}, 16);
  const json& p = found["probabilities"];
  ASSERT_EQ(p.size(), 2u);
  EXPECT_DOUBLE_EQ(p[0][0], 0.5);
  EXPECT_DOUBLE_EQ(p[0][1], 0.2);
  EXPECT_DOUBLE_EQ(p[1][0], 0.6);
  EXPECT_DOUBLE_EQ(p[1][1], 90.0 / 420) << "20 rounds are too few: those of both levels";
  EXPECT_EQ(found["children"][1][1]["offered"], 20);
}

TEST(TreeShapeReport, AHundredRoundsAreEnough) {
  const json p = answer({tree_line("a", 5, {{200, 50, 50}, {50, 50}}, {{100, 10, 5}, {30, 5}})}, 16)["probabilities"];
  ASSERT_EQ(p[0].size(), 3u);
  EXPECT_DOUBLE_EQ(p[0][2], 0.1) << "at all levels together";
  EXPECT_DOUBLE_EQ(p[1][0], 0.6) << "at a level of its own";
  EXPECT_DOUBLE_EQ(p[1][1], 0.1);
  const json few = tree_line("a", 5, {{200, 50, 49}, {50, 50}}, {{100, 10, 5}, {30, 5}});
  EXPECT_EQ(answer({few}, 16)["probabilities"][0].size(), 2u);
}

TEST(TreeShapeReport, RunsOfSeveralShapesAndBudgetsAreAdded) {
  json other = good_line("b", 9);
  other["run"]["drafter"]["shape"] = {{0}, {1}};
  EXPECT_EQ(answer({good_line(), other}, 16)["children"][0][0]["offered"], 800);
  EXPECT_EQ(answer({good_line(), good_line()}, 16)["children"][0][0]["offered"], 400) << "one key counts once";
}

TEST(TreeShapeReport, StepTimesAreFittedAndDecideTheTree) {
  std::vector<StepsOfRows> steps;
  const Result line = made(good_line());
  for (const SideRecord* side : {&line.repeats[0].speculative, &line.repeats[0].baseline}) add_steps(*side, steps);
  const StepTimes t = fitted(steps);
  for (const auto& [rows, levels] : {std::pair(1, 0), {5, 2}, {32, 2}})
    EXPECT_NEAR(t.seconds(rows, levels), 0.010 + 0.001 * rows + 0.004 * levels, 1e-9) << rows;
  EXPECT_NEAR(t.deviation, 0, 1e-9);
  EXPECT_EQ(t.sequences, 1);

  // By hand: nodes 2, 1 level: 1.5 / 16 ms; 3 nodes: a chain 1.8 / 21, siblings 1.7 / 17; 4 nodes, 2 levels: 2.0 / 22.
  const json found = answer({good_line()}, 4);
  EXPECT_EQ(found["chosen"]["nodes"], 3);
  EXPECT_EQ(found["chosen"]["levels"], 1);
  EXPECT_NEAR(found["chosen"]["tau"], 1.7, 1e-12);
  EXPECT_EQ(found["document"]["drafter"]["shape"], (json{{0}, {1}}));
  EXPECT_EQ(found["document"]["policy"], (json{{"name", "fixed"}, {"length", 1}, {"nodes", 3}}));
  EXPECT_EQ(found["document"]["drafter"]["model"], "experiments/models/draft");
  EXPECT_EQ(found["trees"][0]["nodes"], 1);
  EXPECT_NEAR(found["trees"][0]["tokens_per_second"], 1 / 0.011, 1e-6);
}

TEST(TreeShapeReport, StepTimesOfABatchAreThoseOfAllItsRows) {
  std::vector<StepsOfRows> steps;  // of four sequences
  for (const auto& [n, nodes, levels] : {std::array{20l, 1l, 0l}, {10, 3, 2}, {5, 5, 2}, {5, 4, 1}}) {
    const long drafted = 4 * (nodes - 1);
    const double draft = 0.004 * double(levels) + 0.0005 * double(drafted);
    steps.push_back({4 * nodes, n, 4 * n, n * levels, n * drafted, double(n) * draft,
                     double(n) * (0.010 + 0.001 * 4 * double(nodes) + draft)});
  }
  const StepTimes t = fitted(steps);
  EXPECT_EQ(t.sequences, 4);
  EXPECT_NEAR(t.seconds(5, 2), 0.010 + 0.020 + 0.008 + 0.008, 1e-9);
  EXPECT_NEAR(t.seconds(1, 0), 0.014, 1e-9);
  const StepTimes mean = fitted({{1, 30, 30, 0, 0, 0, 30 * 0.014}, {1, 10, 10, 0, 0, 0, 10 * 0.018}});
  EXPECT_NEAR(mean.seconds(1, 0), 0.015, 1e-9) << "every step counts once";

  json line = good_line();
  for (json& repeat : line["repeats"])
    for (const char* side : {"speculative", "baseline"})
      for (json& s : repeat[side]["steps_of_rows"]) s["sequences"] = 80;
  EXPECT_NEAR(answer({line}, 4)["trees"][0]["tokens_per_second"], 4 / 0.014, 1e-6);
}

// 3 nodes: 1.7 / 17 ms; a third place makes it 1.72 / 18.
TEST(TreeShapeReport, ALargerTreeIsNotChosenForItsTokensAlone) {
  const json found = answer({tree_line("a", 5, {{200, 200, 200}}, {{100, 40, 4}})}, 4);
  EXPECT_EQ(found["trees"].back()["nodes"], 4);
  EXPECT_NEAR(found["trees"].back()["tau"], 1.72, 1e-12);
  EXPECT_EQ(found["chosen"]["nodes"], 3);
}

TEST(TreeShapeReport, WithoutStepTimesTheMostTokensARoundDecide) {
  json line = good_line();
  for (json& repeat : line["repeats"])
    for (const char* side : {"speculative", "baseline"}) repeat[side]["steps_of_rows"] = json::array();
  const json found = answer({line}, 4);
  EXPECT_EQ(found["chosen"]["nodes"], 4);
  EXPECT_EQ(found["chosen"]["levels"], 2);
  EXPECT_NEAR(found["chosen"]["tau"], 2.0, 1e-12);
  EXPECT_EQ(found["trees"][0]["step_seconds"], nullptr);
}

TEST(TreeShapeReport, TablesMarkWhatIsPooledAndWhatWasChosen) {
  const std::string text = tree_shape({good_line()}, {16, {}, "markdown"});
  EXPECT_TRUE(says(text, "| 2 | 200 | 0.600 | 0.214~ |")) << text;
  EXPECT_TRUE(says(text, "chosen |")) << text;
  const std::size_t begin = text.find("```json\n") + 8, end = text.rfind("\n```");
  const json part = json::parse(text.substr(begin, end - begin));
  EXPECT_NO_THROW((void)TreeShape::read(part["drafter"]["shape"]));
  EXPECT_TRUE(says(tree_shape({good_line()}, {16, {}, "csv"}), "nodes,levels,tau,step_ms,tokens_per_second"));
  EXPECT_TRUE(says(tree_shape({good_line()}, {16}), "Best trees"));
}

// Forwards of 10 ms and `row` seconds a row, of batches up to 4 and trees of up to 16 nodes; drafting takes next to
// nothing.
TreeCosts costs_of_rows(double row, int batch = 1, json document = json::object()) {
  std::vector<CostedStep> steps;
  for (const int sequences : {1, 4})
    for (const int nodes : {1, 4, 16}) {
      const int depth = nodes == 1 ? 0 : 2;
      const double draft = depth == 0 ? 0 : 1e-6, rows = double(sequences) * nodes;
      steps.push_back({.shape = {.batch = sequences, .depth = depth, .levels = double(sequences) * depth, .rows = rows},
                       .seconds = 0.010 + row * rows + draft,
                       .draft_seconds = draft});
    }
  return {.model = std::make_shared<const CostModel>(std::move(steps), PromptCosts{}),
          .document = std::move(document),
          .file = "costs.json",
          .machine = "a machine",
          .batch = batch};
}
json answer_by(TreeCosts costs, int nodes = 0) {
  return json::parse(tree_shape({good_line()}, {.nodes = nodes, .format = "json", .costs = std::move(costs)}));
}

TEST(TreesByCosts, OfRowsThatCostNothingTheLargestIsBest) {
  const json found = answer_by(costs_of_rows(0));
  EXPECT_EQ(found["chosen"]["nodes"], 7) << "of the two levels and places that are known";
  EXPECT_EQ(found["document"]["policy"]["nodes"], 7);
  EXPECT_NEAR(found["chosen"]["tau"], 1.7 + 0.7 * (0.6 + 90.0 / 420), 1e-12);
  EXPECT_EQ(answer_by(costs_of_rows(0), 3)["chosen"]["nodes"], 3);
}

TEST(TreesByCosts, OfRowsThatCostAStepEachNoneIsBest) {
  const json found = answer_by(costs_of_rows(1));
  EXPECT_EQ(found["chosen"]["nodes"], 1);
  EXPECT_EQ(found["document"]["policy"], (json{{"name", "fixed"}, {"length", 0}}));
  EXPECT_LT(found["trees"][1]["speedup"], 1);
  EXPECT_TRUE(says(tree_shape({good_line()}, {.costs = costs_of_rows(1)}),
                   "No tree is predicted to be faster than plain decoding"));
}

// By hand, of rows of 1 ms: at batch 1 four nodes give 2.0 / 14 ms and five 2.12 / 15; at batch 4 two nodes give 6 /
// 18, and three 7.2 / 22.
TEST(TreesByCosts, TheBatchDecidesHowMany) {
  const json alone = answer_by(costs_of_rows(1e-3)), four = answer_by(costs_of_rows(1e-3, 4));
  EXPECT_EQ(alone["chosen"]["nodes"], 4);
  EXPECT_NEAR(alone["trees"][0]["tokens_per_second"], 1 / 0.011, 0.1);
  EXPECT_EQ(four["chosen"]["nodes"], 2);
  EXPECT_NEAR(four["trees"][1]["tokens_per_second"], 6 / 0.018, 1);
  EXPECT_NEAR(four["trees"][1]["speedup"], (6 / 0.018) / (4 / 0.014), 0.01);
  EXPECT_EQ(four["costs"]["batch"], 4);
  EXPECT_TRUE(answer_by(costs_of_rows(1e-3, 8), 7)["trees"].back()["beyond_measured_rows"]) << "56 rows at batch 8";
  EXPECT_TRUE(says(tree_shape({good_line()}, {.costs = costs_of_rows(1e-3, 4)}), "those of a machine, from costs.json",
                   "in a batch of 4"));
}

TEST(TreesByCosts, OfAnotherPairOrWithoutDraftsAreRefused) {
  const auto refused = [](TreeCosts costs) { return test::sentence_of([&] { (void)answer_by(std::move(costs)); }); };
  const json own = good_line()["run"]["drafter"];
  json wider = own, other = own;
  wider["shape"] = {8, 1};
  other["model"] = "experiments/models/another";
  EXPECT_EQ(refused(costs_of_rows(0, 1, {{"drafter", wider}})), "") << "trees of any shape";
  EXPECT_TRUE(
      says(refused(costs_of_rows(0, 1, {{"drafter", other}})), "costs.json was measured with '/drafter/model'"));
  TreeCosts plain = costs_of_rows(0);
  plain.model = std::make_shared<const CostModel>(
      std::vector<CostedStep>{{.shape = {.batch = 1, .rows = 1}, .seconds = 0.01}}, PromptCosts{});
  EXPECT_TRUE(says(refused(plain), "costs.json has no step with a draft"));
}

TEST(TreeShapeReport, RefusesWhatItCannotUse) {
  EXPECT_TRUE(says(refusal({test::worked_line()}), "no run of a drafter with a tree of a fixed shape"));
  json old = good_line();
  old["repeats"][1]["speculative"].erase("offered_children");
  EXPECT_TRUE(says(refusal({old}), "the run a does not say which children were accepted", "measure it again"));
  json few = tree_line("a", 5, {{49, 49}}, {{20, 20}});
  EXPECT_TRUE(says(refusal({few}), "a first child 98 times, but 100 are needed", "/workload/limit")) << refusal({few});
  json never = tree_line("a", 5, {{200, 200}}, {{0, 0}});
  EXPECT_TRUE(says(refusal({never}), "no child of a tree was accepted"));
  json failed = good_line();
  failed["error"] = "out of memory";
  EXPECT_TRUE(says(refusal({failed}), "no run of a drafter"));
  json unsure = good_line();
  unsure["run"]["policy"]["confidence"] = 0.4;
  EXPECT_TRUE(says(refusal({unsure}), "by its confidence", "--where /policy/confidence=null"));
  EXPECT_TRUE(says(test::sentence_of([] { (void)tree_shape({good_line()}, {1}); }), "2 to 256 nodes"));
}

TEST(TreeShapeReport, RunsOfDifferentDraftersAreChosenFirst) {
  json other = good_line("b");
  other["run"]["drafter"]["model"] = "experiments/models/draft-large";
  const std::string why = refusal({good_line(), other});
  EXPECT_TRUE(says(why, "differ in /drafter/model", "--where /drafter/model=experiments/models/draft")) << why;
  EXPECT_EQ(refusal({good_line(), other}, {"/drafter/model=experiments/models/draft"}), "");
  json warm = good_line("c");
  warm["run"]["sampling"]["temperature"] = 0.5;
  EXPECT_TRUE(says(refusal({good_line(), warm}), "differ in /sampling/temperature"));
  EXPECT_EQ(refusal({good_line(), warm}, {"/sampling/temperature=0.5"}), "");
  json more = good_line("d");  // a key that the first run lacks
  more["run"]["extra"] = {{"a", 1}};
  const std::string lacks = refusal({good_line(), more});
  EXPECT_TRUE(says(lacks, "differ in /extra", "--where /extra=null")) << lacks;
  EXPECT_EQ(refusal({good_line(), more}, {"/extra=null"}), "");
  json traced = good_line("e");
  traced["run"]["trace"] = {{"file", "t.jsonl"}};
  EXPECT_EQ(refusal({good_line(), traced}), "") << "a trace changes no figure";
  EXPECT_TRUE(says(refusal({good_line()}, {"/sampling/temperature=7"}), "that agrees with --where"));
  for (const char* broken : {"sampling=1", "/a", "="})
    EXPECT_TRUE(says(refusal({good_line()}, {broken}), "--where takes /POINTER=VALUE")) << broken;
  EXPECT_TRUE(says(refusal({good_line()}, {"/a~=1"}), "'/a~' is not a JSON pointer"));
  EXPECT_EQ(refusal({good_line()}, {"/drafter=draft_tree"}), "") << "conditions are those of show";
}

TEST(TreeShapeReport, TimesOfABusyMachineAreLeftOut) {
  json busy = good_line("b");
  busy["run"]["measure"]["busy"] = "accept";
  for (json& repeat : busy["repeats"])
    for (json& rows : repeat["speculative"]["steps_of_rows"]) rows["seconds"] = 100 * rows["seconds"].get<double>();
  const json quiet = answer({good_line()}, 16), both = answer({good_line(), busy}, 16);
  for (std::size_t i = 0; i < quiet["trees"].size(); ++i)
    EXPECT_EQ(both["trees"][i]["step_seconds"], quiet["trees"][i]["step_seconds"]) << i;
  EXPECT_EQ(both["children"][0][0]["offered"], 2 * quiet["children"][0][0]["offered"].get<double>())
      << "acceptance does not depend on the machine";
  EXPECT_TRUE(answer({busy}, 16)["trees"][0]["step_seconds"].is_null());
  EXPECT_TRUE(says(tree_shape({busy}, {16, {}, "markdown"}), "The results have no step times",
                   "Without the step times of 1 run that may be those of a busy machine (/measure/busy)."));
  EXPECT_FALSE(says(tree_shape({good_line()}, {16, {}, "markdown"}), "busy machine"));
}

TEST(TreeShapeReport, DamagedCountsAreRefused) {
  for (const auto& [offered, accepted] :
       {std::pair<json, json>({{200, 200}}, {{100, 201}}), {{{200, 200}}, {{100}}}, {{{200}, {100}}, {{100}}}})
    EXPECT_TRUE(says(refusal({tree_line("a", 5, offered, accepted)}), "the line is damaged")) << offered << accepted;
  json line = good_line();
  line["repeats"][0]["speculative"]["steps_of_rows"][0]["steps"] = 0;
  EXPECT_TRUE(says(refusal({line}), "the times of steps", "the line is damaged"));
}

}  // namespace
}  // namespace foretoken

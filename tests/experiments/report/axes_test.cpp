// Which fields become columns, in which order, and how values are shown.
#include "experiments/report/axes.h"

#include <gtest/gtest.h>

#include "tests/experiments/report/made_results.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::run;

std::vector<std::string> titles(const Axes& axes) {
  std::vector<std::string> found;
  for (const Axis& axis : axes.columns()) found.push_back(axis.title);
  return found;
}

using Titles = std::vector<std::string>;

TEST(Axes, OnlyWhatDiffersInAFixedOrder) {
  const std::vector<json> runs = {run("draft_model", 2, 0, 1), run("ngram", 4, 1, 4), run("ngram", 2, 0, 1)};
  const Axes axes(runs, {"/sampling/temperature", "/policy/length", "/engine/batch", "/drafter"});
  EXPECT_EQ(titles(axes), (Titles{"drafter", "T", "batch", "length"}));
  EXPECT_EQ(axes.label(runs[1]), "ngram, T 1, batch 4, length 4");
}

TEST(Axes, NamesAreToldEvenWhereOtherFieldsTellRunsApart) {
  const std::vector<json> runs = {run("draft_model", 2, 0), run("draft_model", 4, 0), run("ngram", 2, 1)};
  EXPECT_EQ(titles(Axes(runs, {"/drafter", "/policy/length", "/sampling/temperature"})),
            (Titles{"drafter", "T", "length"}));
}

TEST(Axes, WithoutNamedAxesFieldsThatTellRunsApart) {
  std::vector<json> runs = {run("draft_model", 2), run("ngram", 2), run("ngram", 4)};
  runs[0]["drafter"]["model"] = "experiments/models/draft";  // follows from the drafter's name: no column
  runs[2]["measure"]["repeats"] = 9;
  EXPECT_EQ(titles(Axes(runs, {})), (Titles{"drafter", "length"}));
}

TEST(Axes, AFieldOfTheWorkloadThatFollowsFromOthersIsNoColumn) {
  std::vector<json> runs = {run("ngram", 2, 0, 1), run("ngram", 2, 0, 4)};
  runs[1]["workload"]["limit"] = 96;
  const std::vector<std::string> named = {"/engine/batch", "/workload/limit"};
  EXPECT_EQ(titles(Axes(runs, named)), Titles{"batch"});
  runs.push_back(runs[0]);
  runs[2]["workload"]["limit"] = 96;
  EXPECT_EQ(titles(Axes(runs, named)), (Titles{"batch", "limit"}));
}

TEST(Axes, DividedByGivenPointers) {
  const std::vector<json> runs = {run("draft_model", 2, 0, 1), run("ngram", 4, 1, 4)};
  const Axes axes = Axes::of_pointers(runs, {"/engine/batch", "/drafter", "/policy/nodes"});
  EXPECT_EQ(titles(axes), (Titles{"batch", "drafter", "nodes"}));
  EXPECT_EQ(axes.label(runs[1]), "batch 4, ngram") << "what a run lacks is not told";
}

TEST(Axes, PathsAreToldInFullWhereTheirEndsAreEqual) {
  std::vector<json> runs = {run("draft_model", 2), run("draft_model", 2)};
  runs[0]["target"]["model"] = "a/model";
  runs[1]["target"]["model"] = "b/model";
  EXPECT_EQ(Axes(runs, {}).label(runs[1]), "model b/model");
}

TEST(Axes, EqualTitlesNameTheirParents) {
  std::vector<json> runs = {run("ngram", 2), run("ngram", 2), run("ngram", 2)};
  runs[1]["engine"]["limit"] = 3;
  runs[2]["workload"]["limit"] = 4;
  EXPECT_EQ(titles(Axes(runs, {})), (Titles{"engine/limit", "workload/limit"}));
}

TEST(Axes, ASingleRunIsToldByItsDrafter) {
  EXPECT_EQ(Axes({run("ngram", 2)}, {"/policy/length"}).label(run("ngram", 2)), "ngram");
}

TEST(Axes, RowsAreOrderedByNumberAndByAppearance) {
  const std::vector<json> runs = {run("ngram", 10), run("draft_model", 2), run("ngram", 9), run("draft_model", 10)};
  EXPECT_EQ(Axes(runs, {}).order(runs), (std::vector<std::size_t>{2, 0, 1, 3}));
}

TEST(Axes, MethodsStandApartFromConditions) {
  const std::vector<json> runs = {run("ngram", 2, 0), run("ngram", 4, 0), run("draft_model", 4, 1)};
  const Axes axes(runs, {"/sampling/temperature"});
  using Places = std::vector<std::size_t>;
  EXPECT_EQ(titles(axes), (Titles{"drafter", "T", "length"}));
  EXPECT_EQ(axes.methods(), (Places{0, 2}));
  EXPECT_EQ(axes.conditions(), Places{1});
  EXPECT_EQ(axes.of_policy(), Places{2});
  EXPECT_EQ(axes.outside_policy(), (Places{0, 1}));
}

TEST(Axes, AModelIsOneText) {
  std::vector<json> runs(3,
                         json{{"target", {{"model", "m/target"}, {"inflate", nullptr}}}, {"drafter", {{"name", "d"}}}});
  runs[1]["target"]["inflate"] = "llama-3.1-8b";
  runs[2]["target"]["model"] = {{"random", "llama-3.1-8b"}, {"seed", 3}, {"tokenizer", "t"}};
  const Axes axes(runs, {"/target/inflate", "/target/model"});
  EXPECT_EQ(titles(axes), Titles{"model"});
  EXPECT_EQ(axes.cell(0, runs[0]).shown(), "target");
  EXPECT_EQ(axes.cell(0, runs[1]).shown(), "target inflated to llama-3.1-8b");
  EXPECT_EQ(axes.cell(0, runs[2]).shown(), "random llama-3.1-8b seed 3");
  EXPECT_EQ(told(runs[1], "/target/model"), "m/target inflated to llama-3.1-8b");
  EXPECT_EQ(told({{"target", {{"model", {{"some", "thing"}}}}}}, "/target/model"), (json{{"some", "thing"}}));
}

}  // namespace
}  // namespace foretoken

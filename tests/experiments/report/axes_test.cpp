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
  EXPECT_EQ(axes.label(runs[1]), "drafter ngram, T 1, batch 4, length 4");
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

TEST(Axes, AModelIsAColumnWhereTheNameIsNotEnough) {
  std::vector<json> runs = {run("draft_model", 2), run("draft_model", 2), run("ngram", 2)};
  runs[0]["drafter"]["model"] = "experiments/models/draft";
  runs[1]["drafter"]["model"] = "experiments/models/draft-large";
  const Axes axes(runs, {"/drafter"});
  EXPECT_EQ(titles(axes), (Titles{"drafter", "model"}));
  EXPECT_EQ(axes.label(runs[1]), "drafter draft_model, model draft-large");
  EXPECT_EQ(axes.label(runs[2]), "drafter ngram, model -");
}

TEST(Axes, PathsAreToldInFullWhereTheirEndsAreEqual) {
  std::vector<json> runs = {run("draft_model", 2), run("draft_model", 2)};
  runs[0]["target"]["model"] = "a/model";
  runs[1]["target"]["model"] = "b/model";
  EXPECT_EQ(Axes(runs, {}).label(runs[1]), "model b/model");
}

TEST(Axes, EqualTitlesNameTheirParents) {
  std::vector<json> runs = {run("draft_model", 2), run("draft_model", 2), run("draft_model", 2)};
  runs[1]["target"]["model"] = "b";
  runs[2]["drafter"]["model"] = "c";
  EXPECT_EQ(titles(Axes(runs, {})), (Titles{"target/model", "drafter/model"}));
}

TEST(Axes, AListIsOneValue) {
  std::vector<json> runs(3, run("draft_tree", 2));
  runs[0]["drafter"]["shape"] = {1, 1, 1};
  runs[1]["drafter"]["shape"] = {3, 1};
  runs[2]["drafter"]["shape"] = json::parse("[[0], [1], [0, 0]]");
  for (const Axes& axes : {Axes(runs, {"/drafter/shape"}), Axes(runs, {})}) {
    EXPECT_EQ(titles(axes), Titles{"shape"});
    EXPECT_EQ(axes.cell(0, runs[1]).shown(), "[3,1]");
    EXPECT_EQ(axes.cell(0, runs[2]).shown(), "[[0],[1],[0,0]]");
  }
}

TEST(Axes, ASingleRunIsToldByItsDrafter) {
  EXPECT_EQ(Axes({run("ngram", 2)}, {"/policy/length"}).label(run("ngram", 2)), "drafter ngram");
}

TEST(Axes, RowsAreOrderedByNumberAndByAppearance) {
  const std::vector<json> runs = {run("ngram", 10), run("draft_model", 2), run("ngram", 9), run("draft_model", 10)};
  EXPECT_EQ(Axes(runs, {}).order(runs), (std::vector<std::size_t>{2, 0, 1, 3}));
}

TEST(Axes, PolicyStandsApart) {
  const std::vector<json> runs = {run("ngram", 2, 0), run("ngram", 4, 0), run("ngram", 4, 1)};
  const Axes axes(runs, {});
  EXPECT_TRUE(axes.equal(runs[0], runs[1], axes.outside_policy()));
  EXPECT_FALSE(axes.equal(runs[1], runs[2], axes.outside_policy()));
  EXPECT_EQ(axes.of_policy().size(), 1u);
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

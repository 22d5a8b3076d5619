// Figures of a paper in a document, the same figures of results, and both side by side.
#include "experiments/report/published.h"

#include <gtest/gtest.h>

#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::MadeRequest;
using test::says;
using test::sentence_of;

json cell(const std::string& row, double value, const json& where) {
  return {{"row", row}, {"where", where}, {"value", value}};
}

using Several = std::vector<json>;

json table(const std::string& metric, const Several& cells) {
  return {{"table", "Table 1"}, {"metric", metric}, {"called", "x"}, {"definition", "y"}, {"cells", cells}};
}

nlohmann::ordered_json paper(const Several& tables) {
  return nlohmann::ordered_json::parse(json{
      {"published",
       {{"paper", "arXiv 1"},
        {"title", "A paper"},
        {"source", "its PDF"},
        {"settings", {{"hardware", "one GPU"}}},
        {"tables", tables}}}}.dump());
}

Published read(const nlohmann::ordered_json& document) { return *published_of(document, "doc"); }

// Two prompts, of which the second is twice as fast: 30 tokens in 10 rounds, 10 tokens in 10 rounds.
json line() {
  const json drafted_at = {18, 12}, tested_at = {18, 12}, accepted_at = {12, 8}, histogram = {8, 4, 8};
  const std::vector<MadeRequest>
      fast = {{.prompt = 0,
               .category = "a",
               .tokens = 30,
               .rounds = 10,
               .drafted = 20,
               .tested = 20,
               .accepted = 20,
               .share = 1,
               .decode = 0.9},
              {.prompt = 1,
               .category = "b",
               .tokens = 10,
               .rounds = 10,
               .drafted = 10,
               .tested = 10,
               .accepted = 0,
               .share = 2,
               .decode = 1.8}},
      plain = {{.prompt = 0, .category = "a", .tokens = 30, .rounds = 30, .share = 3, .decode = 2.9},
               {.prompt = 1, .category = "b", .tokens = 10, .rounds = 10, .share = 1, .decode = 0.9}};
  const json repeat = {{"baseline", test::measure(plain, json::array(), json::array(), json::array(), {40}, 0, 3)},
                       {"speculative", test::measure(fast, drafted_at, tested_at, accepted_at, histogram, 0.1, 2)}};
  return test::line("00000000000000ab", test::run("ngram", 2), json::object(), json::array({repeat}));
}

double measured(const std::string& metric, const json& more = {}, const json& of = line()) {
  json one = cell("r", 1, json::object());
  if (!more.is_null()) one.update(more);
  const Published published = read(paper({table(metric, {one})}));
  const Result result = made(of);
  return measured_figure(published.tables[0], published.tables[0].cells[0], result, summarize(result)).here.value;
}

TEST(Published, EachMetricIsComputedAsItsPaperHasIt) {
  EXPECT_DOUBLE_EQ(measured("expected_acceptance"), 20.0 / 30);
  EXPECT_DOUBLE_EQ(measured("tokens_per_step"), 40.0 / 20);
  EXPECT_DOUBLE_EQ(measured("tokens_per_step_by_request"), (3.0 + 1.0) / 2);
  EXPECT_DOUBLE_EQ(measured("acceptance_length"), 1 + 20.0 / 18);
  EXPECT_DOUBLE_EQ(measured("accepted_at", {{"position", 2}}), 8.0 / 18);
  EXPECT_DOUBLE_EQ(measured("speedup"), (40.0 / 3) / (40.0 / 4));
  EXPECT_DOUBLE_EQ(measured("question_speedup"), (30.0 / 1 + 10.0 / 2) / (30.0 / 3 + 10.0 / 1));
  EXPECT_DOUBLE_EQ(measured("tokens_per_second"), 40.0 / 3);
  EXPECT_DOUBLE_EQ(measured("decode_speedup"), (0.9 + 2.9) / (0.9 + 1.8));
  EXPECT_DOUBLE_EQ(measured("tpot_speedup"), (2.9 / 29 + 0.9 / 9) / (0.9 / 29 + 1.8 / 9));
  // Of the categories that a cell names alone.
  EXPECT_DOUBLE_EQ(measured("tokens_per_step", {{"categories", {"a"}}}), 3);
  EXPECT_DOUBLE_EQ(measured("question_speedup", {{"categories", {"b"}}}), 0.5);
  EXPECT_DOUBLE_EQ(measured("question_speedup", {{"categories", {"b", "a"}}}), measured("question_speedup"));
}

TEST(Published, MeansLeaveOutOnBothSidesWhatOneOfThemLacks) {
  json failed = line();
  json& request = failed["repeats"][0]["speculative"]["requests"][1];
  request["finish"] = "failed";
  EXPECT_DOUBLE_EQ(measured("tpot_speedup", {}, failed), (2.9 / 29) / (0.9 / 29));
  EXPECT_DOUBLE_EQ(measured("tokens_per_step_by_request", {}, failed), 3);
  json plain_failed = line();
  plain_failed["repeats"][0]["baseline"]["requests"][1]["finish"] = "failed";
  EXPECT_DOUBLE_EQ(measured("tokens_per_step_by_request", {}, plain_failed), 3);
}

TEST(Published, WhatResultsHaveNoSumsForIsUnknownWithTheReason) {
  const auto reason = [](const std::string& metric, const json& more) {
    json one = cell("r", 1, json::object());
    one.update(more);
    const Published published = read(paper({table(metric, {one})}));
    const Result result = made(line());
    const MeasuredFigure found =
        measured_figure(published.tables[0], published.tables[0].cells[0], result, summarize(result));
    EXPECT_FALSE(found.here.known());
    return found.unknown;
  };
  EXPECT_TRUE(says(reason("tokens_per_step", {{"categories", {"c"}}}), "no such prompts"));
  EXPECT_TRUE(says(reason("acceptance_length", {{"categories", {"a"}}}), "over all prompts"));
  EXPECT_TRUE(says(reason("accepted_at", {{"position", 5}}), "position 5"));
}

TEST(Published, MistakesInADocumentAreOneSentence) {
  const auto refusal = [](const Several& tables) { return sentence_of([&] { read(paper(tables)); }); };
  EXPECT_TRUE(says(refusal({table("tokens_per_stap", {cell("r", 1, json::object())})}), "doc", "tokens_per_stap",
                   "did you mean 'tokens_per_step'"));
  json wrong = table("speedup", {cell("r", 1, json::object())});
  wrong["cells"][0]["value"] = "1.5x";
  EXPECT_TRUE(says(refusal({wrong}), "'published/tables/0/cells/0/value'", "must be a number"));
  wrong = table("speedup", {cell("r", 1, json::object())});
  wrong["cels"] = 1;
  EXPECT_TRUE(says(refusal({wrong}), "'published/tables/0/cels' is an unknown field", "did you mean 'cells'"));
  wrong = table("speedup", {});
  wrong.erase("definition");
  EXPECT_TRUE(says(refusal({wrong}), "'published/tables/0/definition' is missing"));
  EXPECT_TRUE(says(refusal({table("accepted_at", {cell("r", 1, json::object())})}), "needs a 'position'"));
  EXPECT_TRUE(says(refusal({table("speedup", {cell("r", 1, {{"batch", 1}})})}), "'batch'", "JSON pointer"));
  EXPECT_FALSE(published_of(nlohmann::ordered_json::object(), "doc").has_value());
}

PublishedDocument document_of(const Several& tables) {
  json other = test::run("ngram", 2);
  other["target"]["model"] = "hub/model";
  return {.name = "doc",
          .published = read(paper(tables)),
          .runs = {other},
          .names = {{{"target", "hub/model"}}, {{"target", "experiments/models/target"}}}};
}

std::string beside(const Several& tables, const std::string& format = "terminal") {
  return compare_published({made(line())}, document_of(tables), {.format = format, .results = "results", .width = 0});
}

const json kOnTarget = {{"/target/model", "@target"}};

TEST(Published, ResultsStandBesideTheFiguresWithWhatDiffers) {
  const Several tables = {table("speedup", {cell("row one", 2, kOnTarget)})};
  const std::string text = beside(tables);
  for (const char* part :
       {"A paper (arXiv 1) beside results", "its PDF", "row one", "2.00", "1.33", "0.67", "stand-ins",
        "/target/model experiments/models/target for hub/model", "one GPU", "stand-in models"})
    EXPECT_TRUE(test::holds(text, part)) << part << "\n" << text;
  const json found = json::parse(beside(tables, "json"));
  const json& row = found["tables"][0]["rows"][0];
  EXPECT_NEAR(row["ratio"].get<double>(), 4.0 / 6, 1e-9);
  EXPECT_NEAR(row["difference"].get<double>(), 4.0 / 3 - 2, 1e-9);
  EXPECT_EQ(row["models"], "stand-ins");
  EXPECT_EQ(row["differs"], json({"/target/model experiments/models/target for hub/model"}));
  EXPECT_TRUE(test::holds(beside(tables, "csv"), "arXiv 1,Table 1,speedup,row one,,2,"));
  EXPECT_TRUE(test::holds(beside(tables, "latex"), "\\toprule"));
  EXPECT_TRUE(test::holds(beside(tables, "markdown"), "| row one | 2.00 |"));
}

// --set /names/target=PATH is how the paper's own weights are taken from elsewhere.
TEST(Published, ModelsOfAnotherPathAreNoStandIns) {
  PublishedDocument document = document_of({table("speedup", {cell("row one", 2, kOnTarget)})});
  document.names = {{{"target", "hub/model"}}, {{"target", "demo"}}, {{"target", "experiments/models/target"}}};
  const std::string text = compare_published({made(line())}, document, {.results = "results", .width = 0});
  EXPECT_TRUE(test::holds(text, "other path"));
  EXPECT_TRUE(test::holds(text, "1 of 1 figures here are of models at other paths"));
  EXPECT_FALSE(test::holds(text, "of stand-in models"));
}

TEST(Published, CellsWithoutARunAreShownAndThoseOfNoRunOfTheDocumentRefused) {
  EXPECT_TRUE(says(sentence_of([] { beside({table("speedup", {cell("r", 2, {{"/policy/length", 9}})})}); }),
                   "none of its runs meets 'where' of the cell 'r'"));
  PublishedDocument document = document_of({table("speedup", {cell("here", 2, kOnTarget)})});
  document.runs.push_back(document.runs[0]);
  const auto compare = [&] { return compare_published({made(line())}, document, {.results = "results"}); };
  EXPECT_TRUE(says(sentence_of(compare), "several of its runs", "add what tells them apart"));
  document = document_of({table("speedup", {cell("here", 2, {{"/target/model", "@target"}, {"/policy/length", 2}})})});
  json other = line();
  other["run"]["policy"]["length"] = 4;
  const auto unmet = [&] { return compare_published({made(other)}, document, {.results = "results"}); };
  EXPECT_TRUE(says(sentence_of(unmet), "none of the 1 results", "foretoken run doc"));
  EXPECT_TRUE(says(sentence_of([&] { compare_published({}, document, {.results = "none.jsonl"}); }),
                   "none.jsonl holds no result"));
}

}  // namespace
}  // namespace foretoken

// Two sets of results: runs that match, clear differences, runs of one side only.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/report/report.h"
#include "experiments/report/terminal.h"
#include "kernels/error.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"
#include "tests/support/source.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::holds;
using test::swept_line;
using test::swept_lines;

json compared(const std::vector<json>& a, const std::vector<json>& b, const std::vector<std::string>& ignore = {}) {
  CompareOptions options;
  options.format = "json";
  options.ignore = ignore;
  return json::parse(compare(a, b, options));
}

TEST(Compare, EqualResultsDoNotDiffer) {
  const json found = compared(swept_lines(), swept_lines());
  ASSERT_EQ(found["matched"].size(), 16u);
  for (const json& pair : found["matched"])
    for (const char* figure : {"tokens_per_second", "speedup", "tau", "alpha"}) {
      EXPECT_EQ(pair[figure]["ratio"]["value"], 1.0);
      EXPECT_EQ(pair[figure]["clear"], 0);
    }
  EXPECT_TRUE(found["only_a"].empty() && found["only_b"].empty());
}

TEST(Compare, ClearDifferencesAreTold) {
  const std::vector<json> a = {swept_line("ngram", 2, 0, 1, 1.0)}, b = {swept_line("ngram", 2, 0, 1, 1.5)};
  const json pair = compared(a, b)["matched"][0];
  EXPECT_NEAR(pair["speedup"]["ratio"]["value"].get<double>(), 1.5, 1e-9);
  EXPECT_GT(pair["speedup"]["ratio"]["low"], 1);
  EXPECT_EQ(pair["speedup"]["clear"], 1);
  EXPECT_EQ(pair["tau"]["clear"], 0);
  const std::string text = compare(a, b, {});
  EXPECT_TRUE(
      holds(text, "1 run on both sides: speedup clearly higher in B 1, clearly lower 0, no clear difference 0."))
      << text;
  EXPECT_TRUE(holds(text, "↑")) << text;
  EXPECT_TRUE(holds(compare(b, a, {}), "↓"));
}

// The same name, other contents: prompts that changed are not the same prompts, weights that changed are named.
TEST(Compare, ChangedSourcesAreNamed) {
  json a = swept_line("ngram", 2, 0, 1, 1.0), b = swept_line("ngram", 2, 0, 1, 1.5);
  a["sources"] = {{"experiments/prompts.jsonl", "xxh3:1"}, {"experiments/models/target", "xxh3:2"}};
  b["sources"] = {{"experiments/prompts.jsonl", "xxh3:1"}, {"experiments/models/target", "xxh3:3"}};
  EXPECT_TRUE(holds(compare({a}, {b}, {}), "Other contents in B than in A: experiments/models/target (1 run)."));
  json pair = compared({a}, {b})["matched"][0];
  EXPECT_EQ(pair["changed_sources"], json({"experiments/models/target"}));
  EXPECT_EQ(pair["speedup"]["clear"], 1);
  b["sources"]["experiments/prompts.jsonl"] = "xxh3:4";
  pair = compared({a}, {b})["matched"][0];
  EXPECT_TRUE(pair["speedup"]["ratio"]["low"].is_null());
  EXPECT_TRUE(holds(compare({a}, {b}, {}), "not comparable 1"));
  EXPECT_FALSE(holds(compare({a}, {a}, {}), "Other contents"));
}

TEST(Compare, SaysWhereOutputsChangedThoughRunAndDeviceAreTheSame) {
  json a = swept_lines()[0];
  a["machine"]["device"] = "cpu", a["alternations"] = {{"compared", true}, {"differing", json::array()}};
  a["outputs"] = {{"baseline", "xxh3:1"}, {"speculative", "xxh3:2"}};
  json b = a;
  b["outputs"]["speculative"] = "xxh3:3", b["commit"] = "def", b["run"]["measure"]["repeats"] = 7;
  const std::string changed =
      "Other outputs in B than in A (speculative) of 1 run, though run and device are the same.";
  EXPECT_TRUE(holds(compare({a}, {b}, {}), changed));
  EXPECT_EQ(compared({a}, {b})["matched"][0]["changed_outputs"], json({"speculative"}));
  EXPECT_FALSE(holds(compare({a}, {a}, {}), "Other outputs"));
  const auto silent = [&](const char* pointer, const json& value) {
    json other = b;
    other[json::json_pointer(pointer)] = value;
    return !holds(compare({a}, {other}, {}), "Other outputs");
  };
  EXPECT_TRUE(silent("/machine/device", "reference")) << "another device rounds otherwise";
  EXPECT_TRUE(silent("/alternations/compared", false)) << "what learns may draft otherwise";
  EXPECT_TRUE(silent("/machine/instructions", "avx2"));
  EXPECT_TRUE(silent("/outputs", nullptr)) << "of runs that failed";
  a["machine"]["device"] = b["machine"]["device"] = "cuda";
  EXPECT_FALSE(holds(compare({a}, {b}, {}), "Other outputs")) << "fast numerics promise no bits";
  a["run"]["engine"]["numerics"] = b["run"]["engine"]["numerics"] = "invariant";
  EXPECT_TRUE(holds(compare({a}, {b}, {}), changed));
}

TEST(Compare, FailedRequestsAreTold) {
  const json whole = test::worked_line(), lacking = test::line_with_a_failure();
  const std::string text = compare({whole}, {lacking}, {});
  EXPECT_TRUE(holds(text, "failed A  B") && holds(text, "1 request of 1 run failed")) << text;
  EXPECT_FALSE(holds(compare({whole}, {whole}, {}), "failed"));
  const json pair = compared({whole}, {lacking})["matched"][0];
  EXPECT_EQ(pair["failed_requests"], json({{"a", 0}, {"b", 1}}));
  EXPECT_FALSE(compared({whole}, {whole})["matched"][0].contains("failed_requests"));
  CompareOptions options;
  options.format = "csv";
  EXPECT_TRUE(holds(compare({whole}, {lacking}, options), "failed_requests_a,failed_requests_b"));
}

TEST(Compare, RunsOfOneSideAreListed) {
  std::vector<json> a = swept_lines(), b = swept_lines();
  a.erase(a.begin());
  b.pop_back();
  const json found = compared(a, b);
  EXPECT_EQ(found["matched"].size(), 14u);
  ASSERT_EQ(found["only_a"].size(), 1u);
  ASSERT_EQ(found["only_b"].size(), 1u);
  EXPECT_EQ(found["only_b"][0]["key"], "draft_model2-0-1");
  const std::string text = compare(a, b, {});
  EXPECT_TRUE(holds(text, "Only in A:\n  ngram, T 1, batch 4, length 8\n")) << text;
  EXPECT_TRUE(holds(text, "Only in B:\n  draft_model, T 0, batch 1, length 2\n")) << text;
}

TEST(Compare, RepeatsNeverTellRunsApart) {
  std::vector<json> b = swept_lines();
  for (json& line : b) line["run"]["measure"]["repeats"] = 9;
  EXPECT_EQ(compared(swept_lines(), b)["matched"].size(), 16u);
}

TEST(Compare, WhatIsIgnoredNeedNotAgree) {
  std::vector<json> b = swept_lines();
  for (json& line : b) line["run"]["engine"]["device"] = "cuda";
  EXPECT_TRUE(compared(swept_lines(), b)["matched"].empty());
  EXPECT_TRUE(holds(compare(swept_lines(), b, {}), "No run is on both sides: all differ in /engine/device; --ignore"));
  EXPECT_EQ(compared(swept_lines(), b, {"/engine/device"})["matched"].size(), 16u);
  EXPECT_THROW(compared(swept_lines(), b, {"engine.device"}), Error);
  EXPECT_THROW(compared(swept_lines(), b, {"/policy"}), Error) << "then runs of one side could not be told apart";
}

TEST(Compare, WhatNoRunHasCannotBeIgnored) {
  const auto refusal = [](const std::string& pointer) {
    return test::sentence_of([&] { compared(swept_lines(), swept_lines(), {"/engine/device", pointer}); });
  };
  EXPECT_TRUE(test::says(refusal("/engine/devcie"), "'/engine/devcie'", "did you mean '/engine/device'"));
  EXPECT_TRUE(test::says(refusal("/polcy"), "'/polcy'", "did you mean '/policy'"));
  for (const char* nothing : {"/", "/engine/", "/engine/device/0", "/nothing/of/the/kind"})
    EXPECT_TRUE(test::says(refusal(nothing), nothing, "no run has the field")) << nothing;
  EXPECT_EQ(refusal("/target"), "");
  EXPECT_EQ(refusal("/measure/repeats"), "");
  std::vector<json> b = swept_lines();
  for (json& line : b) line["run"]["engine"]["new_option"] = 3;
  EXPECT_EQ(compared(swept_lines(), b, {"/engine/new_option"})["matched"].size(), 16u) << "one side has it";
}

// Also where a field has a value of another type.
TEST(Compare, AnotherFormOfAFieldIsAnotherRun) {
  std::vector<json> a = swept_lines(), b = swept_lines();
  for (json& line : a) line["run"]["workload"]["categories"] = json::array();
  for (json& line : b) line["run"]["workload"]["categories"] = {"math"};
  EXPECT_TRUE(compared(a, b)["matched"].empty());
  EXPECT_TRUE(compared(b, a)["matched"].empty());
  EXPECT_EQ(compared(a, b, {"/workload/categories"})["matched"].size(), 16u);
  b = swept_lines();
  for (json& line : b) line["run"]["target"]["model"] = {{"random", "llama-3.1-8b"}, {"seed", 1}};
  EXPECT_TRUE(compared(swept_lines(), b)["matched"].empty());
}

TEST(Compare, FailuresAndPromisesAreTold) {
  std::vector<json> b = swept_lines();
  b[0].erase("repeats");
  b[0]["error"] = "out of memory";
  b[1]["promise"] = "lossy";
  const std::string text = compare(swept_lines(), b, {});
  EXPECT_TRUE(holds(text, "failed in B: out of memory")) << text;
  CompareOptions markdown;
  markdown.format = "markdown";
  EXPECT_TRUE(holds(compare(swept_lines(), b, markdown), "| draft_model | 0 | 1 | 8 | exact/lossy |"));
  EXPECT_TRUE(holds(text, ", failed 1.")) << text;
  EXPECT_EQ(compared(swept_lines(), b)["matched"][0]["error"], "failed in B: out of memory");
}

TEST(Compare, FitsATerminal) {
  const std::string text = compare(swept_lines(), swept_lines(), {});
  for (const std::string& line : test::split_lines(text)) EXPECT_LE(display_width(line), 118) << line;
  CompareOptions options;
  options.format = "csv";
  EXPECT_TRUE(compare(swept_lines(), swept_lines(), options)
                  .starts_with("drafter,sampling.temperature,engine.batch,policy.length,tokens_per_second_a,"
                               "tokens_per_second_a_low,"));
  options.format = "markdown";
  EXPECT_TRUE(holds(compare(swept_lines(), swept_lines(), options), "| drafter | T | batch | length | tok/s A | B |"));
  options.format = "pdf";
  EXPECT_THROW(compare(swept_lines(), swept_lines(), options), Error);
  EXPECT_THROW(compare(std::vector<json>{}, std::vector<json>{}, {}), Error);
}

}  // namespace
}  // namespace foretoken

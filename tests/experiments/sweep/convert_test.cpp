// Lines of an earlier schema as those of this one.
#include "experiments/sweep/convert.h"

#include "tests/experiments/report/made_results.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

// As schema 1 had it: nulls, no empty lists, and in early versions neither newer keys nor newer counts.
json line_of_1(json line) {
  line["schema"] = 1;
  line["nvcc"] = nullptr;
  for (const char* list : {"failures", "two_speeds", "thrown_away", "shared_baseline", "models", "sources"})
    line.erase(list);
  for (json& repeat : line["repeats"])
    for (const char* name : {"baseline", "speculative"}) {
      for (const char* later : {"cut", "no_draft", "steps_of_rows", "gaps"}) repeat[name].erase(later);
      for (json& request : repeat[name]["requests"]) {
        request["log_probability"] = nullptr;
        for (const char* later : {"turn", "first_tokens"}) request.erase(later);
      }
    }
  return line;
}

class Converted : public Runs {
 protected:
  Result convert(const json& line) { return converted(line, bench.registries(), "old.jsonl:1"); }
  json line_of(const json& run) {
    json line = worked_line();
    line["run"] = run, line["key"] = key_of(run);
    return whole(line);
  }
};

TEST_F(Converted, HaveTheFiguresThatTheyHad) {
  const json now = line_of(run_of().document);
  const Result result = convert(line_of_1(now));
  EXPECT_EQ(result.schema, kResultSchema);
  EXPECT_EQ(result.key, key_of(run_of().document));
  EXPECT_EQ(result.run, run_of().document);
  EXPECT_EQ(to_json(summarize(result))["figures"].dump(), to_json(summarize(now))["figures"].dump());
  EXPECT_FALSE(result.repeats[0].baseline.requests[0].log_probability);
  EXPECT_EQ(to_json(convert(to_json(result))), to_json(result)) << "what is of this schema stays as it is";
}

TEST_F(Converted, AreKnownAsTheRunsThatTheyWere) {
  const json run = run_of({{"drafter", {{"name", "draft_tree"}, {"shape", {1, 1}}, {"cut", false}}}}).document;
  json older = run;
  older["workload"].erase("turns"), older["workload"].erase("lengths"), older["workload"].erase("skip");
  older["measure"].erase("keep_outputs"), older["measure"].erase("busy"), older["drafter"].erase("cut");
  EXPECT_EQ(convert(line_of_1(line_of(older))).key, key_of(run)) << "its lengths were equal";
  json unknown = run;
  unknown["drafter"] = {{"name", "of a plugin"}};
  EXPECT_EQ(convert(line_of_1(line_of(unknown))).run, unknown);
}

TEST_F(Converted, FailuresStayFailures) {
  json failed = line_of(run_of().document);
  failed.erase("repeats"), failed["error"] = "out of memory", failed["schema"] = 1;
  EXPECT_EQ(convert(failed).error, "out of memory");
}

TEST_F(Converted, OtherLinesAreRefused) {
  const auto refusal = [&](const json& line) { return sentence_of([&] { (void)convert(line); }); };
  json line = line_of(run_of().document);
  for (const json& schema : std::initializer_list<json>{nullptr, 0, 3, "1"}) {
    line["schema"] = schema;
    EXPECT_TRUE(says(refusal(line), "old.jsonl:1", "a schema from 1 to 2", "name a file")) << schema;
  }
  line["schema"] = 1;
  line["repeats"][0].erase("baseline");
  EXPECT_TRUE(says(refusal(line), "old.jsonl:1", "not a complete result line", "baseline"));
  EXPECT_TRUE(says(refusal(json::array()), "old.jsonl:1", "name a file"));
}

}  // namespace
}  // namespace foretoken::test

// The validator of runs: defaults, refusals with the nearest name, one canonical text for each run; and the documents
// made from its list.
#include "experiments/session/run_document.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "experiments/sweep/sweep.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/source.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

class Documents : public testing::Test {
 protected:
  Documents() {
    register_drafters(registries);
    register_verifiers(registries);
  }
  json complete(const json& document) const { return complete_run(document, registries, "doc"); }
  std::string refusal(const std::string& setting) const {
    json document = least;
    return sentence_of([&] {
      put_setting(document, setting, "--set");
      complete(document);
    });
  }

  Registries registries;
  json least = {{"target", {{"model", "m"}}}, {"workload", {{"prompts", "p"}}}};
};

TEST_F(Documents, DefaultsAreFilledIn) {
  const json run = complete(least);
  EXPECT_EQ(run["drafter"], json({{"name", "none"}}));
  EXPECT_EQ(run["policy"], json({{"name", "fixed"}, {"length", 4}, {"nodes", nullptr}, {"confidence", nullptr}}));
  EXPECT_EQ(run["verifier"]["name"], "speculative_sampling");
  for (const RunKey& k : run_keys())
    if (k.allowed.left_out) {
      EXPECT_FALSE(run.contains(json::json_pointer(k.pointer))) << k.pointer << ": runs keep the names they had before";
    } else if (!k.allowed.required && k.type != "component") {
      EXPECT_EQ(run.at(json::json_pointer(k.pointer)), k.standard) << k.pointer;
    }
  EXPECT_EQ(complete(run), run) << "a complete run is its own completion";
}

TEST_F(Documents, EqualRunsAreOneText) {
  json other = complete(least);
  other["sampling"]["temperature"] = 0.0, other["sampling"]["top_p"] = 1.0;
  EXPECT_EQ(complete(other).dump(), complete(least).dump());
  EXPECT_EQ(key_of(complete(other)), key_of(complete(least)));
  other["sampling"]["seed"] = 2;
  EXPECT_NE(key_of(complete(other)), key_of(complete(least)));
  EXPECT_EQ(key_of(complete(least)).size(), 16u);
}

TEST_F(Documents, NoConfidenceHasOneForm) {
  json other = least;
  other["policy"] = {{"name", "fixed"}, {"confidence", nullptr}};
  EXPECT_EQ(complete(other).dump(), complete(least).dump());
  EXPECT_TRUE(says(refusal("/policy/confidence=0"), "'confidence'", "null: off", "not 0"));
  EXPECT_EQ(refusal("/policy/confidence=0.001"), "");
}

TEST_F(Documents, ADenseTraceIsOfDraftsThatNoConfidenceEnds) {
  json document = least;
  document["policy"] = {{"name", "fixed"}, {"confidence", 0.4}};
  const auto said = [&](bool dense) {
    document["trace"] = {{"file", "t.jsonl"}, {"dense", dense}};
    return sentence_of([&] { complete(document); });
  };
  EXPECT_TRUE(says(said(true), "doc: '/trace/dense'", "the policy \"fixed\" ends them", "leave its confidence out"));
  EXPECT_EQ(said(false), "");
  document["policy"]["confidence"] = nullptr;
  EXPECT_EQ(said(true), "");
}

TEST_F(Documents, ANameMayBeLeftOutWhereThereIsADefault) {
  json document = least;
  document["policy"] = {{"length", 7}};
  EXPECT_EQ(complete(document)["policy"],
            json({{"name", "fixed"}, {"length", 7}, {"nodes", nullptr}, {"confidence", nullptr}}));
  document["drafter"] = {{"longest", 3}};
  EXPECT_TRUE(says(sentence_of([&] { complete(document); }), "drafter", "ngram"));
}

TEST_F(Documents, UnknownNamesComeWithTheNearest) {
  EXPECT_TRUE(says(refusal("/sampling/temprature=1"), "doc", "temprature", "did you mean '/sampling/temperature'"));
  EXPECT_TRUE(says(refusal("/engin/batch=1"), "did you mean '/engine'"));
  EXPECT_TRUE(says(refusal("/drafter/name=ngrm"), "ngrm", "did you mean 'ngram'", "draft_model"));
  EXPECT_TRUE(says(refusal("/policy/lenght=3"), "fixed", "did you mean 'length'"));
  EXPECT_TRUE(says(refusal("/verifier/name=x"), "verifier", "coupled"));
}

TEST_F(Documents, RangesAndTypesHold) {
  EXPECT_EQ(refusal("/sampling/top_p=1"), "");
  EXPECT_EQ(refusal("/sampling/min_p=0"), "");
  EXPECT_EQ(refusal("/sampling/logit_bias={\"0\":1.5,\"70\":-100}"), "");
  for (const char* bad : {"/sampling/top_p=0",
                          "/sampling/top_p=1.1",
                          "/sampling/min_p=1",
                          "/sampling/min_p=-0.1",
                          "/sampling/temperature=-1",
                          "/sampling/temperature=\"hot\"",
                          "/engine/batch=0",
                          "/engine/batch=1.5",
                          "/engine/batch=true",
                          "/engine/device=gpu",
                          "/engine/check=1",
                          "/measure/repeats=0",
                          "/target/dtype=fp7",
                          "/workload/stop=\"a\"",
                          "/workload/stop=[1]",
                          "/workload/stop=[\"\"]",
                          "/target/model=\"\"",
                          "/target=3",
                          "/drafter=3",
                          "/sampling/repetition_penalty=0",
                          "/sampling/samples=0",
                          "/sampling/logit_bias=[1]",
                          "/sampling/logit_bias={\"x\":1}",
                          "/sampling/logit_bias={\"07\":1}",
                          "/sampling/logit_bias={\"7\":-101}",
                          "/sampling/logit_bias={\"7\":null}",
                          "/engine/step_rows=2"}) {
    const std::string pointer = std::string(bad).substr(0, std::string(bad).find('='));
    EXPECT_TRUE(says(refusal(bad), "doc", pointer)) << bad;
  }
  EXPECT_TRUE(says(refusal("/engine/device=gpu"), "one of auto, cpu, reference, cuda"));
  EXPECT_TRUE(says(refusal("/sampling/top_p=0"), "> 0, <= 1"));
  EXPECT_TRUE(says(refusal("/drafter=3"), "'/drafter' must be component", "`name` and its options"));
  EXPECT_TRUE(says(sentence_of([&] { complete({{"target", {{"model", "m"}}}}); }), "/workload/prompts", "missing"));
  EXPECT_TRUE(says(sentence_of([&] { complete(json::array()); }), "object"));
}

TEST_F(Documents, AnOpenLoopHasARateAndMayHaveLimits) {
  for (const char* bad : {"0", "-2", "\"4\"", "[2,4]"})
    EXPECT_TRUE(says(refusal(std::string("/workload/rate=") + bad), "doc", "'/workload/rate' must be number")) << bad;
  for (const std::string limit : {"/workload/ttft_limit", "/workload/tpot_limit"})
    EXPECT_TRUE(says(refusal(limit + "=0.5"), "doc", "'" + limit + "'", "give '/workload/rate'"));
  least["workload"].update({{"rate", 4.0}, {"ttft_limit", 0.2}, {"tpot_limit", nullptr}});
  const json workload = complete(least)["workload"];
  EXPECT_EQ(workload["rate"], 4);
  EXPECT_EQ(workload["ttft_limit"], 0.2);
  EXPECT_FALSE(workload.contains("tpot_limit")) << "null is as if it were not there";
  EXPECT_TRUE(says(refusal("/workload/ttft_limit=0"), "'/workload/ttft_limit'", "> 0"));
  EXPECT_TRUE(says(refusal("/sampling/samples=2"), "'/workload/rate'", "'/sampling/samples'", "'/workload/repeats'"));
  EXPECT_TRUE(says(refusal("/workload/rate=null"), "'/workload/ttft_limit'", "give '/workload/rate'"));
}

TEST_F(Documents, AnOpenLoopMayHaveRates) {
  for (const char* bad : {"[]", "[[1,-2]]", "[[-1,2]]", "[[1,0]]", "[[1,0],[1,2]]", "[2,4]", "[[1,2],[1]]"})
    EXPECT_TRUE(says(refusal(std::string("/workload/rates=") + bad), "doc: ", "'/workload/rates'")) << bad;
  EXPECT_TRUE(says(refusal("/workload/rates=4"), "doc", "'/workload/rates' must be list", "not 4"));
  EXPECT_TRUE(says(refusal("/workload/ttft_limit=0.5"), "'/workload/rate' or '/workload/rates'"));
  least["workload"].update({{"rates", {{30.0, 2.0}, {10, 0.5}, {20, 0}}}, {"tpot_limit", 0.1}});
  const json run = complete(least);
  EXPECT_EQ(run["workload"]["rates"].dump(), "[[30,2],[10,0.5],[20,0]]") << "equal runs are one text";
  EXPECT_FALSE(run["workload"].contains("rate"));
  EXPECT_TRUE(says(refusal("/workload/rate=4"), "'/workload/rate'", "'/workload/rates'", "leave one of them out"));
  EXPECT_TRUE(says(refusal("/sampling/samples=2"), "'/workload/rates' draws", "'/workload/repeats'"));
  EXPECT_TRUE(says(refusal("/workload/turns=2"), "'/workload/rates' draws", "leave out '/workload/rates'"));
  EXPECT_TRUE(says(refusal("/workload/rates=null"), "'/workload/tpot_limit'", "give '/workload/rate'"));
}

TEST_F(Documents, ATemperatureMustHaveAReciprocal) {
  EXPECT_EQ(refusal("/sampling/temperature=1e-30"), "");
  for (const char* small : {"1e-300", "1e-39", "4.9e-324"})
    EXPECT_TRUE(says(refusal(std::string("/sampling/temperature=") + small), "doc", "/sampling/temperature",
                     "too small to divide by", "use 0 for greedy"))
        << small;
}

TEST_F(Documents, NumbersThatAreNoneAreShownAsWhatTheyAre) {
  for (const auto& [number, shown] :
       {std::pair(std::nan(""), "not nan"), {HUGE_VAL, "not inf"}, {-HUGE_VAL, "not -inf"}}) {
    json document = least;
    document["sampling"]["top_p"] = number;
    EXPECT_TRUE(says(sentence_of([&] { complete(document); }), "/sampling/top_p", shown));
    document["sampling"].erase("top_p");
    document["drafter"] = {{"name", "draft_model"}, {"model", "m"}, {"temperature", number}};
    EXPECT_TRUE(says(sentence_of([&] { complete(document); }), "'temperature'", "draft_model", shown));
  }
}

TEST_F(Documents, FilesSayWhereTheMistakeIs) {
  const TemporaryFolder folder;
  EXPECT_TRUE(says(sentence_of([&] { read_document(folder.write("a.json", "{\n  \"x\": 1,\n}")); }), "a.json", "line 3",
                   "column 1"));
  EXPECT_TRUE(says(sentence_of([&] { read_document(folder.write("b.json", R"({"x": {"y": 1, "y": 2}})")); }), "b.json",
                   "'y' twice"));
  EXPECT_TRUE(says(sentence_of([&] { read_document(folder.path() / "none.json"); }), "none.json", "does not exist"));
  EXPECT_TRUE(says(sentence_of([&] { read_document(folder.write("c.json", std::string(100000, '['))); }), "c.json"));
  EXPECT_EQ(read_document(folder.write("d.json", R"({"b": 1, "a": 2})")).begin().key(), "b");
}

TEST_F(Documents, ThePageOfKeysListsEveryKey) {
  const std::string page = read_source("experiments/keys.md"), mark = "a test compares -->\n\n";
  const auto at = page.find(mark);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(page.substr(at + mark.size()), describe_keys(registries, true)) << "run: ./foretoken keys --markdown";
}

TEST_F(Documents, TheStudyOfCostsIsAboutInflatedModels) {
  for (const char* name : {"inflated.json", "ngram_inflated.json"}) {
    const auto file = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "experiments/configs" / name;
    const auto runs = expand(read_document(file), {}, registries, file.string());
    EXPECT_EQ(runs.size(), 2u * 4 * 4);
    for (const auto& run : runs) {
      EXPECT_EQ(run.document["target"]["inflate"], "llama-3.1-8b");
      EXPECT_EQ(run.document["drafter"].value("inflate", "llama-3.2-1b"), "llama-3.2-1b");
      EXPECT_EQ(run.document["workload"]["limit"], 24);
      EXPECT_EQ(run.document["workload"]["max_new_tokens"], 64);
    }
  }
}

}  // namespace
}  // namespace foretoken::test

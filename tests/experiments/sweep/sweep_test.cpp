// Sweeps: every combination in the document's order, any pointer, and refusals.
#include "experiments/sweep/sweep.h"

#include <gtest/gtest.h>

#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

class Sweeps : public testing::Test {
 protected:
  Sweeps() {
    register_drafters(registries);
    register_verifiers(registries);
  }
  std::vector<foretoken::Run> runs(const std::string& axes, const std::vector<std::string>& settings = {}) const {
    return expand(ordered_json::parse(R"({"base": {"target": {"model": "m"}, "workload": {"prompts": "p"}}, "axes": )" +
                                      axes + "}"),
                  settings, registries, "doc");
  }
  std::string refusal(const std::string& axes, const std::vector<std::string>& settings = {}) const {
    return sentence_of([&] { runs(axes, settings); });
  }
  Registries registries;
};

TEST_F(Sweeps, TakeEveryCombinationTheLastAxisFastest) {
  const auto all = runs(R"({"/sampling/temperature": [0, 1], "/policy/length": [1, 2, 4]})");
  ASSERT_EQ(all.size(), 6u);
  const int length[] = {1, 2, 4, 1, 2, 4}, temperature[] = {0, 0, 0, 1, 1, 1};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(all[i].document["policy"]["length"], length[i]);
    EXPECT_EQ(all[i].document["sampling"]["temperature"], temperature[i]);
    EXPECT_EQ(all[i].axes, json({{"/policy/length", length[i]}, {"/sampling/temperature", temperature[i]}}));
    EXPECT_EQ(all[i].key, key_of(all[i].document));
  }
}

TEST_F(Sweeps, AxesOfOneObjectOfAListAreWalkedTogether) {
  const auto all = runs(R"([{"/policy/length": [1, 4], "/engine/batch": [64, 2]}, {"/sampling/temperature": [0, 1]}])");
  ASSERT_EQ(all.size(), 4u);
  const int length[] = {1, 1, 4, 4}, batch[] = {64, 64, 2, 2}, temperature[] = {0, 1, 0, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    const json axes{
        {"/policy/length", length[i]}, {"/engine/batch", batch[i]}, {"/sampling/temperature", temperature[i]}};
    EXPECT_EQ(all[i].axes, axes);
    EXPECT_EQ(all[i].document["engine"]["batch"], batch[i]);
  }
  EXPECT_TRUE(says(refusal(R"([{"/policy/length": [1, 4], "/engine/batch": [64]}])"), "'/policy/length'",
                   "'/engine/batch'", "2 and 1 values"));
  EXPECT_TRUE(
      says(refusal(R"([{"/policy/length": [1]}, {"/policy/length": [2]}])"), "'/policy/length'", "two objects"));
  EXPECT_TRUE(says(refusal("[1]"), "'axes' must be an object"));
  EXPECT_TRUE(says(refusal("1"), "'axes' must be an object"));
  EXPECT_TRUE(says(refusal(R"([{"/policy/length": [1, 4]}])", {"/policy/length=2"}), "is an axis"));
}

TEST_F(Sweeps, AnAxisMayBeAnObjectAndALaterOnePartOfIt) {
  const auto all = runs(R"({"/drafter/longest": [2, 5], "/drafter": [{"name": "ngram", "shortest": 1}]})");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].document["drafter"], json({{"name", "ngram"}, {"longest", 5}, {"shortest", 1}, {"candidates", 1}}));
}

// Values without effect are refused: a value or a setting that an axis overwrites.
TEST_F(Sweeps, AxesThatOverwriteOneAnotherAreRefused) {
  const std::string inner = R"("/drafter/longest": [2, 5])", outer = R"("/drafter": [{"name": "ngram", "longest": 3}])";
  for (const std::string& axes : {inner + ", " + outer, outer + ", " + inner})
    EXPECT_TRUE(says(refusal("{" + axes + "}"), "doc", "the axes '/drafter' and '/drafter/longest' overlap",
                     R"({"longest":3,"name":"ngram"})", "take one of the axes out"));
  EXPECT_TRUE(
      says(refusal(R"({"/workload/stop": [["a"]], "/workload/stop/0": ["b"]})"), "'/workload/stop'", "overlap"));
  EXPECT_TRUE(says(refusal(R"({"/target/model": ["m"], "/target/model/seed": [1]})"), "'/target/model'", "overlap"));
  EXPECT_EQ(runs(R"({"/policy/length": [1, 2], "/sampling/temperature": [0], "/sampling/seed": [1]})").size(), 2u);
}

TEST_F(Sweeps, ASettingInsideAnAxisIsRefused) {
  const std::string axes = R"({"/drafter": [{"name": "ngram"}, {"name": "none"}]})";
  EXPECT_TRUE(says(refusal(axes, {"/drafter/longest=4"}), "'/drafter' is an axis", "--set /drafter/longest"));
  EXPECT_EQ(runs(R"({"/drafter/longest": [2, 3]})", {"/drafter={\"name\": \"ngram\"}"}).size(), 2u);
}

// "@NAME" stands for a value wherever it is written, also within an axis, which a setting of the name changes.
TEST_F(Sweeps, NamesStandForTheirValues) {
  const ordered_json document = ordered_json::parse(R"({
    "names": {"target": "hub/target", "draft": {"directory": "d", "dtype": "bf16"}, "most": 8},
    "base": {"target": {"model": "@target"}, "workload": {"prompts": "p", "max_new_tokens": "@most"}},
    "axes": {"/drafter": [{"name": "none"}, {"name": "draft_model", "model": "@draft"}]},
    "stand_ins": ["/names/target=t", "/engine/batch=2"]})");
  const auto all = expand(document, {}, registries, "doc");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].document["target"]["model"], "hub/target");
  EXPECT_EQ(all[1].document["drafter"]["model"], "d");
  EXPECT_EQ(all[1].document["drafter"]["dtype"], "bf16");
  EXPECT_EQ(all[1].document["workload"]["max_new_tokens"], 8);
  EXPECT_EQ(expand(document, {"/names/draft=other"}, registries, "doc")[1].document["drafter"]["model"], "other");
  const auto standing = expand(document, stand_ins(document, "doc"), registries, "doc");
  EXPECT_EQ(standing[0].document["target"]["model"], "t");
  EXPECT_EQ(standing[0].document["engine"]["batch"], 2);

  const auto refused = [&](const char* key, const char* value, const std::vector<std::string>& settings = {}) {
    ordered_json other = document;
    other[key] = ordered_json::parse(value);
    return sentence_of([&] { expand(other, settings, registries, "doc"); });
  };
  EXPECT_TRUE(says(refused("names", R"({"target": "t", "most": 8})"), "doc", "'@draft' is none", "most, target"));
  EXPECT_TRUE(
      says(refused("names", R"({"target": "t", "draft": "d", "most": 8, "more": 1})"), "'more' is used nowhere"));
  EXPECT_TRUE(says(refused("names", "[1]"), "'names' must be an object"));
  EXPECT_TRUE(says(refused("stand_ins", R"(["x"])"), "'stand_ins' must be a list of POINTER=VALUE"));
  EXPECT_TRUE(says(refused("stand_ins", "{}"), "'stand_ins' must be a list"));
  EXPECT_TRUE(says(refused("published", R"({"paper": 1})"), "doc", "'published/paper' is 1", "a string"));
  EXPECT_TRUE(says(refused("publish", "{}"), "unknown key '/publish'", "did you mean '/published'"));
  EXPECT_TRUE(
      says(refused("base", R"({"target": {"model": "@target"}, "workload": {"prompts": "p", "limit": "@most"}})",
                   {"/names/tarkget=x"}),
           "sets none of its names", "did you mean 'target'"));
}

TEST_F(Sweeps, EqualRunsAreMeasuredOnce) { EXPECT_EQ(runs(R"({"/sampling/temperature": [0, 0.0, 1]})").size(), 2u); }

TEST_F(Sweeps, ADocumentWithoutBaseIsOneRun) {
  const auto all = expand(ordered_json::parse(R"({"target": {"model": "m"}, "workload": {"prompts": "p"}})"),
                          {"/engine/batch=2"}, registries, "doc");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].document["engine"]["batch"], 2);
}

TEST_F(Sweeps, SettingsAreJsonOrText) {
  const auto all = runs("{}", {"/drafter={\"name\": \"ngram\"}", "/target/model=a b", "/workload/stop=[\"x=y\"]"});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].document["drafter"]["name"], "ngram");
  EXPECT_EQ(all[0].document["target"]["model"], "a b");
  EXPECT_EQ(all[0].document["workload"]["stop"][0], "x=y");
}

// A name of digits is an index only in a list.
TEST_F(Sweeps, AKeyOfDigitsIsPutIntoAnObject) {
  EXPECT_EQ(runs("{}", {"/sampling/logit_bias/17=-100"})[0].document["sampling"]["logit_bias"], json({{"17", -100}}));
  const auto all = runs(R"({"/sampling/logit_bias/0": [1, 2]})");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].document["sampling"]["logit_bias"], json({{"0", 2}}));
}

TEST_F(Sweeps, AnEntryOfAListIsReplacedOrAppended) {
  EXPECT_EQ(runs("{}", {"/workload/stop/0=x", "/workload/stop/1=y", "/workload/stop/-=z", "/workload/stop/0=w"})[0]
                .document["workload"]["stop"],
            json({"w", "y", "z"}));
  for (const char* index : {"1", "3000000000", "99999999999999999999", "00", "+0", "x", ""}) {
    EXPECT_TRUE(says(refusal("{}", {"/workload/stop/" + std::string(index) + "=x"}), "doc", "a list of 0",
                     "'/workload/stop/" + std::string(index) + "'"));
    EXPECT_TRUE(says(refusal("{\"/workload/stop/" + std::string(index) + "\": [\"x\"]}"), "a list of 0"));
  }
}

TEST_F(Sweeps, WhatIsNoUtf8IsRefused) {
  for (const char* bytes : {"a\xff", "a\xfe", "\xc3"})
    EXPECT_TRUE(says(refusal("{}", {"/target/model=" + std::string(bytes)}), "doc", "no valid UTF-8"));
  EXPECT_EQ(runs("{}", {"/target/model=\xc3\xa9"}).size(), 1u);
  const json model = "a\xff";
  EXPECT_TRUE(says(sentence_of([&] {
                     expand({{"target", {{"model", model}}}, {"workload", {{"prompts", "p"}}}}, {}, registries, "doc");
                   }),
                   "'/target/model'", "no valid UTF-8"));
}

TEST_F(Sweeps, WhatIsNoKeyIsRefused) {
  EXPECT_TRUE(says(refusal(R"({"/policy/lenght": [1]})"), "doc", "/policy/lenght", "did you mean 'length'"));
  EXPECT_TRUE(says(refusal(R"({"/engin/batch": [1]})"), "/engin/batch", "did you mean '/engine'"));
  EXPECT_TRUE(says(refusal(R"({"/drafter/model": ["x"]})"), "none", "model"));
  EXPECT_TRUE(says(refusal(R"({"/target/model/x": [1]})"), "/target/model/x"));
  EXPECT_TRUE(says(refusal(R"({"policy": [1]})"), "JSON pointer"));
  EXPECT_TRUE(says(refusal(R"({"": [1]})"), "JSON pointer"));
  EXPECT_TRUE(says(refusal(R"({"/policy/length": []})"), "/policy/length", "at least one value"));
  EXPECT_TRUE(says(refusal(R"({"/policy/length": 3})"), "/policy/length", "list"));
  EXPECT_TRUE(says(refusal(R"({"/policy/length": [1]})", {"/policy/length=2"}), "/policy/length", "axis"));
  EXPECT_TRUE(says(refusal("{}", {"engine"}), "POINTER=VALUE"));
  EXPECT_TRUE(
      says(sentence_of([&] { expand(ordered_json::parse(R"({"base": {}, "axis": {}})"), {}, registries, "doc"); }),
           "axis", "did you mean '/axes'"));
  EXPECT_TRUE(says(sentence_of([&] { expand(ordered_json::parse("[1]"), {}, registries, "doc"); }), "object"));
}

}  // namespace
}  // namespace foretoken::test

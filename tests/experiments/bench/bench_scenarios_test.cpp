// Files of scenarios: absent keys have defaults, unknown keys are refused.
#include <gtest/gtest.h>

#include "experiments/bench/bench_steps.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

class Scenarios : public testing::Test {
 protected:
  Scenarios() {
    register_drafters(registries);
    register_verifiers(registries);
  }
  std::vector<Scenario> read(const json& document, const std::string& only = "", const std::string& device = "") const {
    return read_scenarios(folder.write("s.json", document.dump()), only, device, registries);
  }
  // A file with one scenario that has this key.
  std::string refusal(const std::string& key, const json& value) const {
    json scenario = least;
    scenario[key] = value;
    return sentence_of([&] { read({{"scenarios", {scenario}}}); });
  }

  TemporaryFolder folder;
  Registries registries;
  json least = {{"name", "decode"}, {"target", {{"model", "m"}}}};
};

TEST_F(Scenarios, DefaultsAreFilledIn) {
  const Scenario scenario = read({{"scenarios", {least}}}).at(0);
  EXPECT_EQ(scenario.name, "decode");
  EXPECT_EQ(scenario.batch, 1);
  EXPECT_EQ(scenario.guesses, 0);
  EXPECT_FALSE(scenario.prompt);
  EXPECT_EQ(scenario.run["drafter"], json({{"name", "none"}}));
  EXPECT_EQ(scenario.run["policy"]["length"], 0);
  EXPECT_EQ((std::vector<int>{scenario.context, scenario.steps, scenario.children, scenario.guessing, scenario.moves}),
            (std::vector<int>{1024, 24, 1, 1, 0}));
  EXPECT_FALSE(scenario.attention);
  for (const double none : {scenario.share, scenario.bar_ms, scenario.peer_ms, scenario.most, scenario.verify_share,
                            scenario.host_share, scenario.draft_most})
    EXPECT_EQ(none, 0);
  EXPECT_EQ(scenario.over, "");
  EXPECT_EQ(scenario.run["workload"]["ignore_eos"], true) << "every step decodes all sequences";
  EXPECT_EQ(scenario.run["engine"]["batch"], 1);
}

// Each key goes where it belongs, and no further.
TEST_F(Scenarios, EveryKeyIsRead) {
  json scenario = least;
  scenario.update({{"batch", 6},
                   {"context", 96},
                   {"steps", 5},
                   {"guesses", 3},
                   {"children", 2},
                   {"guessing", 4},
                   {"nodes", 9},
                   {"bar_ms", 1.5},
                   {"peer_ms", 2.5},
                   {"verify_share", 0.1},
                   {"host_share", 0.2},
                   {"draft_most", 1.25},
                   {"sampling", {{"temperature", 0.5}}}});
  const Scenario s = read({{"scenarios", {scenario}}}).at(0);
  EXPECT_EQ((std::vector<int>{s.batch, s.context, s.steps, s.guesses, s.children, s.guessing}),
            (std::vector<int>{6, 96, 5, 3, 2, 4}));
  EXPECT_EQ((std::vector<double>{s.bar_ms, s.peer_ms, s.verify_share, s.host_share, s.draft_most}),
            (std::vector<double>{1.5, 2.5, 0.1, 0.2, 1.25}));
  EXPECT_EQ(s.run["policy"]["nodes"], 9);
  EXPECT_EQ(s.run["sampling"]["temperature"], 0.5);
  EXPECT_EQ(s.run["engine"]["batch"], 6);
  json drafting = least;
  drafting["length"] = 2, drafting["drafter"] = {{"name", "ngram"}}, drafting["prompt"] = true;
  const Scenario d = read({{"scenarios", {drafting}}}).at(0);
  EXPECT_TRUE(d.prompt);
  EXPECT_EQ(d.run["policy"]["length"], 2);
  EXPECT_EQ(d.run["drafter"]["name"], "ngram");
}

TEST_F(Scenarios, TheFilesEngineIsEveryScenariosButForItsOwn) {
  json own = least, guessing = least;
  own["engine"] = {{"numerics", "invariant"}}, own["batch"] = 8;
  guessing["guesses"] = 7, guessing["children"] = 2, guessing["name"] = "verify";
  const json document = {{"engine", {{"device", "cuda"}, {"memory_mib", 77}}}, {"scenarios", {own, guessing}}};
  const std::vector<Scenario> scenarios = read(document);
  ASSERT_EQ(scenarios.size(), 2u);
  EXPECT_EQ(scenarios[0].run["engine"]["numerics"], "invariant");
  EXPECT_EQ(scenarios[0].run["engine"]["memory_mib"], 77);
  EXPECT_EQ(scenarios[0].run["engine"]["batch"], 8);
  EXPECT_EQ(scenarios[1].run["engine"]["numerics"], "fast");
  EXPECT_EQ(scenarios[1].run["policy"]["length"], 7);
  EXPECT_EQ(scenarios[1].run["drafter"], json({{"name", "guesses"}, {"children", 2}, {"guessing", 1}}));
  const std::vector<Scenario> one = read(document, "ver", "reference");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].run["engine"]["device"], "reference");
}

TEST_F(Scenarios, AttentionAloneHasAShareForABar) {
  json scenario = least;
  scenario["attention"] = true, scenario["share"] = 0.7, scenario["guesses"] = 7;
  const Scenario read_back = read({{"scenarios", {scenario}}}).at(0);
  EXPECT_TRUE(read_back.attention);
  EXPECT_EQ(read_back.share, 0.7);
  EXPECT_EQ(read_back.guesses, 7);
  for (const auto& [key, value] : {std::pair{"prompt", json(true)}, std::pair{"bar_ms", json(3)}}) {
    json both = scenario;
    both[key] = value;
    EXPECT_TRUE(says(sentence_of([&] { read({{"scenarios", {both}}}); }), "scenario 'decode'", "attention")) << key;
  }
}

TEST_F(Scenarios, CompactionAloneHasNoStep) {
  json scenario = least;
  scenario["moves"] = 8;
  EXPECT_EQ(read({{"scenarios", {scenario}}}).at(0).moves, 8);
  for (const auto& [key, value] : {std::pair{"prompt", json(true)}, std::pair{"attention", json(true)},
                                   std::pair{"guesses", json(3)}, std::pair{"verify_share", json(0.1)}}) {
    json both = scenario;
    both[key] = value;
    EXPECT_NE(sentence_of([&] { read({{"scenarios", {both}}}); }), "") << key;
  }
}

TEST_F(Scenarios, AScenarioIsComparedWithOneBeforeIt) {
  json first = least, second = least;
  first["name"] = "chain", second["name"] = "tree";
  second["over"] = "chain", second["most"] = 1.1, second["guesses"] = 31, second["children"] = 4;
  second["verifier"] = {{"name", "k_seq"}}, second["verify_share"] = 0.05;
  const std::vector<Scenario> both = read({{"scenarios", {first, second}}});
  EXPECT_EQ(both.at(1).over, "chain");
  EXPECT_EQ(both.at(1).most, 1.1);
  EXPECT_EQ(both.at(1).run["verifier"]["name"], "k_seq");
  EXPECT_EQ(read({{"scenarios", {first, second}}}, "tree").size(), 1u) << "also where that one is not measured";
  EXPECT_TRUE(says(sentence_of([&] { read({{"scenarios", {second, first}}}); }), "no scenario 'chain'", "before"));
}

TEST_F(Scenarios, WhatIsWrongIsOneSentence) {
  EXPECT_TRUE(says(refusal("contxt", 3), "s.json: scenario 'decode'", "'contxt'", "did you mean 'context'"));
  EXPECT_TRUE(says(refusal("batch", "2"), "scenario 'decode'", "batch", "integer"));
  EXPECT_TRUE(says(refusal("batch", 0), "batch"));
  EXPECT_TRUE(says(refusal("prompt", 1), "prompt", "true or false"));
  EXPECT_TRUE(says(refusal("share", 0.8), "scenario 'decode'", "share", "attention"));
  EXPECT_TRUE(says(refusal("attention", 1), "attention", "true or false"));
  EXPECT_TRUE(says(refusal("children", 4), "scenario 'decode'", "children", "guesses"));
  EXPECT_TRUE(says(refusal("guessing", 1), "scenario 'decode'", "guessing", "guesses"));
  EXPECT_TRUE(says(refusal("moves", -1), "moves"));
  EXPECT_TRUE(says(refusal("over", "decode"), "scenario 'decode'", "over", "before"));
  EXPECT_TRUE(says(refusal("most", 1.1), "scenario 'decode'", "most", "over"));
  EXPECT_TRUE(says(refusal("verifier", {{"name", "k_sec"}}), "did you mean 'k_seq'"));
  EXPECT_TRUE(says(refusal("engine", 1), "engine", "object"));
  EXPECT_TRUE(says(refusal("engine", {{"devise", "cpu"}}), "scenario 'decode'", "did you mean '/engine/device'"));
  EXPECT_TRUE(says(refusal("drafter", {{"name", "ngrm"}}), "did you mean 'ngram'"));
  EXPECT_TRUE(says(refusal("name", 7), "scenario 1", "name"));
  EXPECT_TRUE(says(sentence_of([&] { read({{"scenario", {least}}}); }), "did you mean 'scenarios'"));
  EXPECT_TRUE(says(sentence_of([&] { read(json::object()); }), "scenarios"));
  EXPECT_TRUE(says(sentence_of([&] { read({{"scenarios", {{{"name", "x"}}}}}); }), "scenario 'x'", "target"));
  EXPECT_TRUE(says(sentence_of([&] { read({{"scenarios", {least}}}, "prompt"); }), "no scenario", "--only"));
}

}  // namespace
}  // namespace foretoken::test

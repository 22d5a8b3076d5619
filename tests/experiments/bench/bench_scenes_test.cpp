// Files of scenes: what is left out has a default, what is not known is refused.
#include "experiments/bench/bench_scenes.h"

#include <gtest/gtest.h>

#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

class Scenes : public testing::Test {
 protected:
  Scenes() {
    register_drafters(registries);
    register_verifiers(registries);
  }
  std::vector<Scene> read(const json& document, const std::string& only = "", const std::string& device = "") const {
    return read_scenes(folder.write("s.json", document.dump()), only, device, registries);
  }
  // With one scene that has this key.
  std::string refusal(const std::string& key, const json& value) const {
    json scene = least;
    scene[key] = value;
    return sentence_of([&] { read({{"scenes", {scene}}}); });
  }

  TemporaryFolder folder;
  Registries registries;
  json least = {{"name", "decode"}, {"target", {{"model", "m"}}}};
};

TEST_F(Scenes, DefaultsAreFilledIn) {
  const Scene scene = read({{"scenes", {least}}}).at(0);
  EXPECT_EQ(scene.name, "decode");
  EXPECT_EQ(scene.batch, 1);
  EXPECT_EQ(scene.guesses, 0);
  EXPECT_FALSE(scene.prompt);
  EXPECT_EQ(scene.run["drafter"], json({{"name", "none"}}));
  EXPECT_EQ(scene.run["policy"]["length"], 0);
}

TEST_F(Scenes, TheFilesEngineIsEveryScenesButForItsOwn) {
  json own = least, guessing = least;
  own["engine"] = {{"numerics", "invariant"}}, own["batch"] = 8;
  guessing["guesses"] = 7, guessing["name"] = "verify";
  const json document = {{"engine", {{"device", "cuda"}, {"memory_mib", 77}}}, {"scenes", {own, guessing}}};
  const std::vector<Scene> scenes = read(document);
  ASSERT_EQ(scenes.size(), 2u);
  EXPECT_EQ(scenes[0].run["engine"]["numerics"], "invariant");
  EXPECT_EQ(scenes[0].run["engine"]["memory_mib"], 77);
  EXPECT_EQ(scenes[0].run["engine"]["batch"], 8);
  EXPECT_EQ(scenes[1].run["engine"]["numerics"], "fast");
  EXPECT_EQ(scenes[1].run["policy"]["length"], 7);
  EXPECT_EQ(scenes[1].run["drafter"]["name"], "guesses");
  const std::vector<Scene> one = read(document, "ver", "reference");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].run["engine"]["device"], "reference");
}

TEST_F(Scenes, AttentionAloneHasAShareForABar) {
  json scene = least;
  scene["attention"] = true, scene["share"] = 0.7, scene["guesses"] = 7;
  const Scene read_back = read({{"scenes", {scene}}}).at(0);
  EXPECT_TRUE(read_back.attention);
  EXPECT_EQ(read_back.share, 0.7);
  EXPECT_EQ(read_back.guesses, 7);
  for (const auto& [key, value] : {std::pair{"prompt", json(true)}, std::pair{"bar_ms", json(3)}}) {
    json both = scene;
    both[key] = value;
    EXPECT_TRUE(says(sentence_of([&] { read({{"scenes", {both}}}); }), "scene 'decode'", "attention")) << key;
  }
}

TEST_F(Scenes, WhatIsWrongIsOneSentence) {
  EXPECT_TRUE(says(refusal("contxt", 3), "s.json: scene 'decode'", "'contxt'", "did you mean 'context'"));
  EXPECT_TRUE(says(refusal("batch", "2"), "scene 'decode'", "batch", "integer"));
  EXPECT_TRUE(says(refusal("batch", 0), "batch"));
  EXPECT_TRUE(says(refusal("prompt", 1), "prompt", "true or false"));
  EXPECT_TRUE(says(refusal("share", 0.8), "scene 'decode'", "share", "attention"));
  EXPECT_TRUE(says(refusal("attention", 1), "attention", "true or false"));
  EXPECT_TRUE(says(refusal("engine", 1), "engine", "object"));
  EXPECT_TRUE(says(refusal("engine", {{"devise", "cpu"}}), "scene 'decode'", "did you mean '/engine/device'"));
  EXPECT_TRUE(says(refusal("drafter", {{"name", "ngrm"}}), "did you mean 'ngram'"));
  EXPECT_TRUE(says(refusal("name", 7), "scene 1", "name"));
  EXPECT_TRUE(says(sentence_of([&] { read({{"scene", {least}}}); }), "did you mean 'scenes'"));
  EXPECT_TRUE(says(sentence_of([&] { read(json::object()); }), "scenes"));
  EXPECT_TRUE(says(sentence_of([&] { read({{"scenes", {{{"name", "x"}}}}}); }), "scene 'x'", "target"));
  EXPECT_TRUE(says(sentence_of([&] { read({{"scenes", {least}}}, "prompt"); }), "no scene", "--only"));
}

}  // namespace
}  // namespace foretoken::test

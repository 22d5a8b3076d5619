// `foretoken list` as text and as JSON.
#include <gtest/gtest.h>

#include "experiments/program/commands.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// The JSON list for programs, pinned with the test's own entry, so a new drafter does not change it.
TEST(List, JsonIsPinned) {
  Registries own;
  Entry<LengthPolicy> entry{"a line",
                            "a paper",
                            {{"most", "integer", 4, "nodes", false, 0, 64}, {"who", "string", nullptr, "a name"}},
                            {},
                            states(Budget())};
  own.policies.add("one", entry);
  entry.options.clear(), entry.plugin = "lib.so";
  own.policies.add("two", entry);
  const json most{{"name", "most"},     {"type", "integer"}, {"needed", false}, {"default", 4},
                  {"meaning", "nodes"}, {"least", 0.0},      {"most", 64.0}};
  const json who{{"name", "who"}, {"type", "string"}, {"needed", true}, {"default", nullptr}, {"meaning", "a name"}};
  json one{{"name", "one"}, {"summary", "a line"}, {"source", "a paper"}, {"options", json::array({most, who})}},
      two = one;
  two["name"] = "two", two["options"] = json::array(), two["plugin"] = "lib.so";
  const json expected{{"drafters", json::array()}, {"policies", json::array({one, two})}, {"verifiers", json::array()}};
  EXPECT_EQ(json::parse(list_registered(own, true)), expected);
}

TEST(List, ShowsEveryOption) {
  Registries registries;
  register_drafters(registries);
  register_verifiers(registries);
  const std::string text = list_registered(registries, false);
  for (const auto& [name, entry] : registries.drafters.entries()) {
    EXPECT_TRUE(says(text, name, entry.summary, entry.source));
    for (const Option& o : entry.options) EXPECT_TRUE(says(text, o.name, o.meaning));
  }
}

TEST(List, OfModelsNamesFamiliesAndShapes) {
  const json models = json::parse(list_models(true));
  EXPECT_EQ(models["architectures"].size(), 16u);
  EXPECT_EQ(models["gguf"], json({"llama", "qwen2", "qwen3", "qwen2moe", "qwen3moe", "gemma2", "gemma3", "phi3",
                                  "olmo2", "smollm3", "gpt-oss", "deepseek2"}));
  const auto shape = [&](const std::string& name) {
    for (const json& s : models["shapes"])
      if (s["name"] == name) return s;
    return json();
  };
  EXPECT_EQ(shape("llama-3.1-8b"),
            (json{{"name", "llama-3.1-8b"}, {"architecture", "LlamaForCausalLM"}, {"parameters", 8.03}}));
  EXPECT_EQ(shape("qwen3-30b-a3b"), (json{{"name", "qwen3-30b-a3b"},
                                          {"architecture", "Qwen3MoeForCausalLM"},
                                          {"parameters", 30.53},
                                          {"parameters_used", 3.35},
                                          {"experts", 128},
                                          {"experts_used", 8}}));
  const std::string text = list_models(false);
  for (const json& s : models["shapes"]) EXPECT_TRUE(says(text, s["name"].get<std::string>() + ": "));
  EXPECT_TRUE(says(text, "mixtral-8x7b: MixtralForCausalLM, 46.7 billion parameters", "2 of 8 experts", "qwen3moe"));
}

}  // namespace
}  // namespace foretoken::test

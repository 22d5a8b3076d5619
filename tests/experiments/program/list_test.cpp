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

}  // namespace
}  // namespace foretoken::test

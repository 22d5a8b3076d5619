// What components are called: all options in which they differ, and never one name for two.
#include <gtest/gtest.h>

#include "experiments/report/axes.h"

namespace foretoken {
namespace {

using nlohmann::json;

json with_drafter(const json& drafter) { return {{"drafter", drafter}}; }

std::vector<std::string> names_of(const std::vector<json>& drafters, const std::vector<std::string>& apart = {}) {
  std::vector<json> runs;
  for (const json& drafter : drafters) runs.push_back(with_drafter(drafter));
  const ComponentNames names(runs, apart);
  std::vector<std::string> found;
  for (const json& run : runs) found.push_back(names.name(run, "/drafter"));
  return found;
}

using Names = std::vector<std::string>;

TEST(ComponentNames, TellTheOptionsThatDiffer) {
  json tree = {{"name", "draft_tree"}, {"shape", {4, 2, 1}}, {"cut", true}, {"model", "m/draft"}, {"dtype", "auto"}};
  json other = tree, ngram = {{"name", "ngram"}, {"longest", 3}};
  EXPECT_EQ(names_of({tree, ngram}), (Names{"draft_tree", "ngram"})) << "options of one name alone are no difference";
  other["cut"] = false, other["shape"] = {8, 1};
  EXPECT_EQ(names_of({tree, other}), (Names{"draft_tree (shape 4 2 1, cut)", "draft_tree (shape 8 1, no cut)"}));
  EXPECT_EQ(names_of({tree, other}, {"/drafter/shape"}), (Names{"draft_tree (cut)", "draft_tree (no cut)"}));
  other = tree, other["dtype"] = nullptr;
  EXPECT_EQ(names_of({tree, other}), (Names{"draft_tree (dtype auto)", "draft_tree"}));
  other.erase("dtype"), tree["dtype"] = 4;
  EXPECT_EQ(names_of({tree, other}), (Names{"draft_tree (dtype 4)", "draft_tree"})) << "an older line lacks it";
}

TEST(ComponentNames, TellModelsByWhatDiffers) {
  const auto draft = [](const json& model, const json& inflate) {
    return json{{"name", "draft_model"}, {"model", model}, {"inflate", inflate}};
  };
  EXPECT_EQ(names_of({draft("a/one", nullptr), draft("a/two", nullptr)}),
            (Names{"draft_model (one)", "draft_model (two)"}));
  EXPECT_EQ(names_of({draft("a/one", nullptr), draft("b/one", nullptr)}),
            (Names{"draft_model (a/one)", "draft_model (b/one)"}));
  EXPECT_EQ(names_of({draft("a/one", "llama-3.2-1b"), draft("a/two", "llama-3.2-1b")}),
            (Names{"draft_model (one)", "draft_model (two)"}))
      << "both are inflated alike";
  EXPECT_EQ(names_of({draft("a/one", nullptr), draft("a/one", "llama-3.2-1b")}),
            (Names{"draft_model (one)", "draft_model (one inflated to llama-3.2-1b)"}));
}

TEST(ComponentNames, TellTheDraftersThatADrafterIsMadeOf) {
  const json ngram = {{"name", "ngram"}, {"candidates", 1}}, model = {{"name", "draft_model"}, {"model", "m"}};
  const json hit = {{"name", "first_hit"}, {"drafters", {ngram, model}}};
  json other = hit, cascade = {{"name", "cascade"}, {"inner", ngram}, {"verifier", {{"name", "speculative_sampling"}}}};
  EXPECT_EQ(names_of({hit, cascade, ngram}), (Names{"first_hit (ngram, draft_model)", "cascade (ngram)", "ngram"}));
  other["drafters"][0]["candidates"] = 4;
  EXPECT_EQ(names_of({hit, other}),
            (Names{"first_hit (ngram (candidates 1), draft_model)", "first_hit (ngram (candidates 4), draft_model)"}));
  EXPECT_EQ(names_of({hit, other}, {"/drafter/drafters/0/candidates"})[0], "first_hit (ngram, draft_model)");
  json typical = cascade;
  typical["verifier"] = {{"name", "typical"}, {"epsilon", 0.3}};
  EXPECT_EQ(names_of({cascade, typical}),
            (Names{"cascade (ngram, verifier speculative_sampling)", "cascade (ngram, verifier typical)"}));
}

// Two drafters that differ in any one option look different, whatever its values look like.
TEST(ComponentNames, AreNeverEqualWhereOptionsDiffer) {
  const std::vector<json> values = {4,        "4",          {4, 2}, "4 2",      true, "true",           false,
                                    "a, b 3", "a",          "a/b",  json("b)"), 4.5,  json({{"x", 1}}), "x 1",
                                    "",       json::array()};
  std::vector<json> drafters;
  for (const json& value : values)
    drafters.push_back({{"name", "d"}, {"a", value}, {"n", {{"name", "e"}, {"a", value}}}});
  drafters.push_back({{"name", "d"}, {"a", "a"}, {"b", "3"}, {"n", {{"name", "e"}, {"a", 4}}}});
  const Names names = names_of(drafters);
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(names[i], names[j]) << drafters[i] << drafters[j];
}

TEST(ComponentNames, LeaveLengthsToTheirColumns) {
  const auto policy = [](int length, const json& confidence) {
    return json{{"policy", {{"name", "fixed"}, {"length", length}, {"confidence", confidence}}}};
  };
  const std::vector<json> runs = {policy(2, nullptr), policy(4, 0.4)};
  const ComponentNames names(runs);
  EXPECT_EQ(names.name(runs[0], "/policy"), "fixed");
  EXPECT_EQ(names.name(runs[1], "/policy"), "fixed (confidence 0.4)");
  EXPECT_TRUE(ComponentNames::covers("/policy/confidence") && !ComponentNames::covers("/policy/length"));
  EXPECT_TRUE(names.name(json::object(), "/policy").is_null());
}

}  // namespace
}  // namespace foretoken

// The options of a run's drafter, policy and verifier where they are made, and which chairs a baseline has.
#include "tests/oracle/document_scene.h"

namespace foretoken::oracle {
namespace {

// Every option with a value that is not its default. Shapes to inflate to are followed by workbench_test.
struct Chairs : Document {
  std::map<std::string, json> made;  // the options that a maker got, by chair and name

  std::map<std::string, json> drafters() const {
    const json types = {{"model", model}, {"dtype", "f32"}, {"kv_dtype", "int8"}};
    const auto with = [&](json more) { return more.update(types), more; };
    return {{"none", json::object()},
            {"ngram", {{"longest", 6}, {"shortest", 4}}},
            {"draft_model", with({{"temperature", .5}})},
            {"draft_tree", with({{"shape", {3, 1}}, {"cut", true}, {"draws", "certain"}, {"temperature", 2}})},
            {"draft_dynamic", with({{"width", 3}, {"expand", 2}})}};
  }
  std::map<std::string, json> policies() const { return {{"fixed", {{"length", 3}, {"nodes", 6}}}}; }
  std::map<std::string, json> verifiers() const {
    std::map<std::string, json> all{{"big_little", {{"rollback", 2.5}}},
                                    {"relaxed_top_k", {{"k", 4}, {"margin", .25}}},
                                    {"synthetic", {{"acceptance", .5}, {"decay", .75}}},
                                    {"threshold", {{"single", .25}, {"accumulated", .75}}},
                                    {"typical_acceptance", {{"epsilon", .125}, {"delta", .5}}}};
    for (const char* exact : {"block_verification", "coupled", "k_seq", "multi_path_block", "speculative_sampling",
                              "target_match", "traversal_verification", "without_replacement"})
      all[exact] = json::object();
    return all;
  }
  // Puts a recorder before every maker.
  template <class T> void record(Registry<T>& registry) {
    for (const auto& [name, entry] : std::map(registry.entries())) {
      Entry<T> recording = entry;
      recording.make = [this, name = registry.what() + " " + name, entry](const json& options, Host& host) {
        made[name] = options;
        return entry.make(options, host);
      };
      registry.replace(name, recording);
    }
  }
  template <class T> void expect_options(const Registry<T>& registry, const std::map<std::string, json>& given) {
    for (const auto& [name, entry] : registry.entries()) {
      SCOPED_TRACE(registry.what() + " " + name);
      ASSERT_TRUE(given.contains(name)) << "give its options values that are not their defaults";
      json document = run();
      document[registry.what()] = given.at(name), document[registry.what()]["name"] = name;
      if (registry.what() != "drafter") document["drafter"] = {{"name", "ngram"}};
      const json whole = complete_run(document, registries, "test");
      engine(whole);
      const json& options = made.at(registry.what() + " " + name);
      for (const Option& o : entry.options) {
        if (!o.of.empty() || o.type == "model") continue;  // parts of a model, below
        ASSERT_TRUE(given.at(name).contains(o.name)) << o.name;
        EXPECT_NE(options.at(o.name), o.standard) << o.name << " has its default";
        EXPECT_EQ(options.at(o.name), given.at(name).at(o.name)) << o.name;
      }
      if (!given.at(name).contains("model")) continue;
      const ModelChoice choice = ModelChoice::read(options.at("model"));
      EXPECT_EQ(choice.random, model.at("random").get<std::string>());
      EXPECT_EQ(choice.dtype, "f32");
      EXPECT_EQ(choice.kv_dtype, "int8");
    }
  }
};

TEST_F(Chairs, every_option_arrives_at_its_maker) {
  record(registries.drafters), record(registries.policies), record(registries.verifiers);
  expect_options(registries.drafters, drafters());
  expect_options(registries.policies, policies());
  expect_options(registries.verifiers, verifiers());
}

TEST_F(Chairs, a_baseline_drafts_nothing_and_has_the_runs_verifier) {
  record(registries.drafters), record(registries.policies), record(registries.verifiers);
  json document = run();
  document["drafter"] = {{"name", "ngram"}}, document["verifier"] = {{"name", "coupled"}};
  document["policy"] = {{"name", "fixed"}, {"length", 5}};
  const json whole = complete_run(document, registries, "test");
  engine(whole, Side::baseline);
  EXPECT_FALSE(made.contains("drafter ngram"));
  EXPECT_TRUE(made.contains("drafter none"));
  EXPECT_EQ(made.at("policy fixed").at("length"), 0);
  EXPECT_TRUE(made.contains("verifier coupled"));
  made.clear();
  engine(whole);
  EXPECT_TRUE(made.contains("drafter ngram"));
  EXPECT_EQ(made.at("policy fixed").at("length"), 5);
}

// The budget of the fixed policy, the same in every round: its length in levels, and its nodes or those of a chain.
TEST_F(Chairs, the_fixed_policy_gives_the_budget_of_its_options) {
  const auto backend = make_reference_backend();
  const HandModel hand({{0, 0}, {0, 0}});
  PagePool pool(*backend, 64, 4);
  Host host(*backend, pool, hand.info(), {}, false);
  const std::vector<PastOnly> past(2);
  for (const auto& [options, budget] : std::vector<std::pair<json, Budget>>{{{{"length", 3}, {"nodes", 6}}, {6, 3}},
                                                                            {{{"length", 3}}, {4, 3}},
                                                                            {{{"length", 0}}, {1, 0}},
                                                                            {json::object(), {5, 4}}}) {
    json config = options;
    config["name"] = "fixed";
    const auto policy = registries.policies.make(config, host);
    EXPECT_EQ(policy->budgets(past), std::vector<Budget>(2, budget)) << config;
    EXPECT_EQ(policy->traits(), budget) << config;
  }
}

TEST_F(Chairs, the_targets_model_and_cache_arrive) {
  const json with = run("target", {{"kv_dtype", "bf16"}});
  const auto e = engine(with);
  EXPECT_EQ(e->target().info().kv.layers.front().dtype, DType::bf16);
  EXPECT_NE(e->target().info().name.find(folder.path().string()), std::string::npos);
  EXPECT_EQ(e->target().info().vocab, 256);
}

}  // namespace
}  // namespace foretoken::oracle

// The options of a run's drafter, policy and verifier where they are made, and which chairs a baseline has.
#include "tests/oracle/document_scene.h"

namespace foretoken::oracle {
namespace {

// Every entry with each of its examples, which between them give every option a value that is not its default. Shapes
// to inflate to are followed by workbench_test.
struct Chairs : Document {
  std::map<std::string, json> made;  // the options that a maker got, by chair and name

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
  bool takes_a_model(const json& config) const {
    return std::ranges::any_of(registries.drafters.find(config).options,
                               [](const Option& o) { return o.type == "model"; });
  }
  // What was given of each arrives, in order.
  void expect_inner(const json& arrived, const json& given) {
    ASSERT_EQ(arrived.size(), given.size());
    for (std::size_t k = 0; k < given.size(); ++k)
      for (const auto& [key, value] : given[k].items())
        if (key != "model") {
          EXPECT_EQ(arrived[k].at(key), value) << k << " " << key;
        }
  }
  // Gives a maker the options of one example and looks at what arrives. Returns the options that were no default.
  template <class T> std::set<std::string> given(const Registry<T>& registry, const std::string& name, json config) {
    const Entry<T>& entry = registry.entries().at(name);
    const auto own_model = [&](const Option& o) { return o.type == "model" && !config.contains(o.instead); };
    if (std::ranges::any_of(entry.options, own_model))
      config.update({{"model", model}, {"dtype", "f32"}, {"kv_dtype", "int8"}});
    for (const Option& o : entry.options) {
      if (o.type == "drafters")
        for (json& inner : config.at(o.name))
          if (takes_a_model(inner)) inner["model"] = model;
      if (o.type == "drafter" && config.contains(o.name) && takes_a_model(config.at(o.name)))
        config[o.name]["model"] = model;
    }
    config["name"] = name;
    json document = run();
    document[registry.what()] = config;
    if (registry.what() == "verifier") document["drafter"] = {{"name", "ngram"}};
    if (registry.what() == "policy")  // which serves all that a policy may ask for
      document["drafter"] = {{"name", "draft_model"}, {"model", model}};
    if (registry.what() != "verifier")
      document["verifier"] = config.value("verifier", json{{"name", "target_match"}});  // it takes every kind of node
    if (registry.what() != "policy") document["policy"] = {{"name", "fixed"}, {"length", 8}, {"nodes", 64}};
    engine(complete_run(document, registries, "test"));
    const json& options = made.at(registry.what() + " " + name);
    std::set<std::string> own;
    for (const Option& o : entry.options) {
      if (!o.of.empty() || o.type == "model") continue;  // parts of a model, below
      if (o.type == "drafters")
        expect_inner(options.at(o.name), config.at(o.name));
      else if ((o.type == "drafter" || o.type == "verifier") && config.contains(o.name))
        expect_inner(json::array({options.at(o.name)}), json::array({config.at(o.name)}));
      else
        EXPECT_EQ(options.at(o.name), config.value(o.name, o.standard)) << o.name;
      if (options.at(o.name) != o.standard) own.insert(o.name);
    }
    if (config.contains("model")) {
      const ModelChoice choice = ModelChoice::read(options.at("model"));
      EXPECT_EQ(choice.random, model.at("random").get<std::string>());
      EXPECT_EQ(choice.dtype, "f32");
      EXPECT_EQ(choice.kv_dtype, "int8");
    }
    return own;
  }
  template <class T> void expect_options(const Registry<T>& registry) {
    for (const auto& [name, entry] : registry.entries()) {
      SCOPED_TRACE(registry.what() + " " + name);
      std::set<std::string> own;
      for (const json& example : entry.examples.empty() ? std::vector{json::object()} : entry.examples)
        own.merge(given(registry, name, example));
      for (const Option& o : entry.options) {
        if (!o.of.empty() || o.type == "model") continue;
        EXPECT_TRUE(own.contains(o.name)) << "no example gives '" << o.name << "' a value that is not its default";
      }
    }
  }
};

TEST_F(Chairs, every_option_arrives_at_its_maker) {
  record(registries.drafters), record(registries.policies), record(registries.verifiers);
  expect_options(registries.drafters);
  expect_options(registries.policies);
  expect_options(registries.verifiers);
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
    EXPECT_EQ(registries.policies.traits(config, hand.info()).most, budget) << config;
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

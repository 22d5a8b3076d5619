// What registries reject, and how they complete options.
#include "framework/components/registry.h"

#include <gtest/gtest.h>

#include "framework/components/host.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

namespace {

// What a sentence says of all drafters: in the order of the alphabet.
std::string drafters_of(const Registries& r) {
  std::string all = "known: ";
  for (const std::string& name : r.drafters.names()) all += (all.size() > 7 ? ", " : "") + name;
  return all;
}

}  // namespace

TEST(RegistryTest, unknown_names_list_the_known_and_the_nearest) {
  Registries r;
  register_drafters(r);
  EXPECT_EQ(test::sentence_of([&] { r.drafters.complete({{"name", "draft_mode"}}); }),
            "unknown drafter 'draft_mode' (did you mean 'draft_model'?); " + drafters_of(r));
  EXPECT_EQ(test::sentence_of([&] { r.policies.complete({{"name", "zzz"}}); }),
            "unknown policy 'zzz'; known: bandit_length, fixed, gamma_tune, goodput, table");
}

TEST(RegistryTest, a_config_without_a_name_is_refused) {
  Registries r;
  register_drafters(r);
  EXPECT_EQ(test::sentence_of([&] { r.drafters.complete({{"longest", 3}}); }),
            "a drafter needs a name, as in {\"name\": \"" + r.drafters.names().front() + "\"}, not {\"longest\":3}; " +
                drafters_of(r));
}

TEST(RegistryTest, a_maker_that_returns_null_is_an_error_that_names_it) {
  Registries r;
  Entry<LengthPolicy> entry{"", "", {}, [](const json&, Host&) { return nullptr; }, states(Budget())};
  r.policies.add("built_in", entry);
  entry.plugin = "lib.so";
  r.policies.add("of_a_plugin", entry);
  const auto backend = make_reference_backend();
  PagePool pool(*backend, 64, 4);
  const ModelInfo target;
  Host host(*backend, pool, target, {}, false);
  EXPECT_EQ(test::sentence_of([&] { r.policies.make({{"name", "built_in"}}, host); }),
            "the policy 'built_in' was not made: its Entry::make returned null; let it return an object, or throw "
            "foretoken::Error");
  EXPECT_TRUE(test::says(test::sentence_of([&] { r.policies.make({{"name", "of_a_plugin"}}, host); }),
                         "the policy 'of_a_plugin' of the plugin lib.so was not made"));
}

TEST(RegistryTest, options_are_checked_and_filled) {
  Registries r;
  register_drafters(r);
  EXPECT_EQ(r.policies.complete({{"name", "fixed"}}),
            (json{{"name", "fixed"}, {"length", 4}, {"nodes", nullptr}, {"confidence", nullptr}}));
  EXPECT_NE(test::sentence_of([&] {
              r.policies.complete({{"name", "fixed"}, {"lenght", 3}});
            }).find("did you mean 'length'?"),
            std::string::npos);
  EXPECT_NE(test::sentence_of([&] { r.policies.complete({{"name", "fixed"}, {"length", 65}}); }).find("0 to 64"),
            std::string::npos);
  EXPECT_TRUE(test::says(test::sentence_of([&] { r.policies.complete({{"name", "fixed"}, {"nodes", 0}}); }),
                         "option 'nodes' of policy 'fixed' must be integer"));
  EXPECT_NE(
      test::sentence_of([&] { r.policies.complete({{"name", "fixed"}, {"length", "4"}}); }).find("must be integer"),
      std::string::npos);
  EXPECT_NE(test::sentence_of([&] { r.drafters.complete({{"name", "draft_model"}}); }).find("needs the option 'model'"),
            std::string::npos);
}

// Options of every type, each with the values that it takes and those that it does not.
TEST(RegistryTest, every_type_has_its_values) {
  struct Case {
    Option option;
    std::vector<json> takes, refuses;
  };
  const std::vector<Case> cases = {
      {{.name = "o", .type = "integer", .standard = 3, .meaning = "", .least = 2, .most = 5},
       {2, 5},
       {1, 6, 2.5, "3", nullptr}},
      {{.name = "o", .type = "integer", .standard = 3, .meaning = "", .optional = true}, {nullptr, -7}, {true}},
      {{.name = "o", .type = "number", .standard = 1, .meaning = "", .least = 0.5, .most = 1},
       {0.5, 1},
       {0.25, 1.5, "1", nullptr}},
      {{.name = "o", .type = "boolean", .standard = true, .meaning = ""}, {true, false}, {0, "true", nullptr}},
      {{.name = "o", .type = "list", .standard = json::array(), .meaning = ""},
       {json::array({1})},
       {1, json::object(), nullptr}},
      {{.name = "o", .type = "string", .standard = "a", .meaning = ""}, {"", "b"}, {1, nullptr}},
      {{.name = "o", .type = "path", .standard = "a", .meaning = ""}, {"b"}, {"", 1, nullptr}},
      {{.name = "o", .type = "path or object", .standard = "a", .meaning = ""},
       {"b", json::object()},
       {"", 1, nullptr, json::array()}},
      {{.name = "o", .type = "model", .standard = "a", .meaning = ""},
       {"b", json{{"directory", "c"}}},
       {"", 1, nullptr}}};
  for (const auto& [option, takes, refuses] : cases) {
    const auto fill = [&](const json& value) { return fill_options("thing", {{"name", "x"}, {"o", value}}, {option}); };
    EXPECT_EQ(fill_options("thing", {{"name", "x"}}, {option}).at("o"), option.standard) << option.type;
    for (const json& value : takes) EXPECT_EQ(test::sentence_of([&] { fill(value); }), "") << option.type << value;
    for (const json& value : refuses)
      EXPECT_EQ(test::sentence_of([&] { fill(value); }),
                "option 'o' of thing 'x' must be " + option.type + " (), not " + value.dump());
  }
}

// A model's shape and types may stand in its object or in options of their own: equal choices are equal documents.
TEST(RegistryTest, a_models_parts_are_spread_over_the_options_for_them) {
  const std::vector<Option> options = {
      {.name = "big", .type = "model", .standard = nullptr, .meaning = "", .optional = true},
      {.name = "small", .type = "model", .standard = "s", .meaning = ""},
      {.name = "shape", .type = "shape", .standard = nullptr, .meaning = "", .optional = true, .of = "small"},
      {.name = "dtype", .type = "dtype", .standard = "auto", .meaning = "", .of = "small"},
      {.name = "kv", .type = "kv_dtype", .standard = "target", .meaning = "", .of = "small"}};
  const auto fill = [&](json config) {
    config["name"] = "x";
    return fill_options("thing", config, options);
  };
  const json plain = {{"name", "x"},      {"big", nullptr},  {"small", "s"},
                      {"shape", nullptr}, {"dtype", "auto"}, {"kv", "target"}};
  const json whole = {{"name", "x"},     {"big", nullptr}, {"small", "m"}, {"shape", "llama-3.1-8b"},
                      {"dtype", "int8"}, {"kv", "fp8"}};
  const json object = {{"directory", "m"}, {"inflate", "llama-3.1-8b"}, {"dtype", "int8"}, {"kv_dtype", "fp8"}};
  EXPECT_EQ(fill({}), plain);
  EXPECT_EQ(fill({{"small", object}}), whole);
  EXPECT_EQ(fill({{"small", "m"}, {"shape", "llama-3.1-8b"}, {"dtype", "int8"}, {"kv", "fp8"}}), whole);
  EXPECT_EQ(fill({{"small", object}, {"dtype", "int8"}}), whole) << "said twice alike";
  EXPECT_EQ(fill({{"big", object}}).at("big"), object) << "a model without such options keeps its parts";
  EXPECT_TRUE(test::says(test::sentence_of([&] { fill({{"small", object}, {"dtype", "int4"}}); }),
                         "thing 'x': 'dtype' of the model", "is given twice"));
  const json made = with_whole_models(whole, options);
  EXPECT_EQ(made.at("small"), object);
  EXPECT_EQ(made.at("big"), nullptr);
  const std::vector<ModelChoice> models = models_of(whole, options);
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].document(), object);
  EXPECT_EQ(models_of({{"name", "x"}, {"small", "s"}}, options).size(), 1u) << "options that are absent are none";
  EXPECT_EQ(models_of({{"name", "x"}}, options).size(), 0u);
}

TEST(RegistryTest, a_name_that_is_taken_says_by_whom) {
  Registries r;
  Entry<Verifier> entry;
  entry.traits = states(Soundness());
  r.verifiers.add("a", entry);
  entry.plugin = "lib.so";
  r.verifiers.add("b", entry);
  EXPECT_EQ(test::sentence_of([&] { r.verifiers.add("a", {}); }),
            "there is a verifier 'a' already (built in); register yours under another name");
  EXPECT_EQ(test::sentence_of([&] { r.verifiers.add("b", {}); }),
            "there is a verifier 'b' already (from lib.so); register yours under another name");
  EXPECT_EQ(test::sentence_of([] { Registries().policies.find(nullptr); }),
            "a policy needs a name, as in {\"name\": \"NAME\"}, not null; known: ");
  for (const json& nameless : {json("a"), json{{"name", 3}}, json::object()})
    EXPECT_TRUE(test::says(test::sentence_of([&] { r.verifiers.find(nameless); }), "a verifier needs a name"));
}

}  // namespace
}  // namespace foretoken::test

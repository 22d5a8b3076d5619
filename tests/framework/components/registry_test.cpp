// What registries reject, and how they complete options.
#include "framework/components/registry.h"

#include <gtest/gtest.h>

#include "framework/components/host.h"
#include "tests/support/sentence.h"

namespace foretoken::testing {
namespace {

using nlohmann::json;

TEST(RegistryTest, unknown_names_list_the_known_and_the_nearest) {
  Registries r;
  register_drafters(r);
  EXPECT_EQ(test::sentence_of([&] { r.drafters.complete({{"name", "draft_mode"}}); }),
            "unknown drafter 'draft_mode' (did you mean 'draft_model'?); known: draft_dynamic, draft_model, "
            "draft_tree, ngram, none");
  EXPECT_EQ(test::sentence_of([&] { r.policies.complete({{"name", "zzz"}}); }), "unknown policy 'zzz'; known: fixed");
}

TEST(RegistryTest, a_config_without_a_name_is_refused) {
  Registries r;
  register_drafters(r);
  EXPECT_EQ(test::sentence_of([&] { r.drafters.complete({{"longest", 3}}); }),
            "a drafter needs a name, as in {\"name\": \"draft_dynamic\"}, not {\"longest\":3}; known: draft_dynamic, "
            "draft_model, draft_tree, ngram, "
            "none");
}

TEST(RegistryTest, a_maker_that_returns_null_is_an_error_that_names_it) {
  Registries r;
  Entry<LengthPolicy> entry{"", "", {}, [](const json&, Host&) { return nullptr; }};
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
  EXPECT_EQ(r.policies.complete({{"name", "fixed"}}), (json{{"name", "fixed"}, {"length", 4}, {"nodes", nullptr}}));
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

}  // namespace
}  // namespace foretoken::testing

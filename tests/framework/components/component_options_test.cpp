// Options that name a component: declared by type, checked and completed as one is, however deep.
#include <gtest/gtest.h>

#include "experiments/conformance/scenario.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/around.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

Option component(const std::string& kind, json standard, bool optional = false) {
  return {
      .name = "inner", .type = kind, .standard = std::move(standard), .meaning = "the inner one", .optional = optional};
}

class Passing : public LengthPolicy {
 public:
  explicit Passing(std::unique_ptr<LengthPolicy> inner) : inner_(std::move(inner)) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override { return inner_->budgets(past); }

 private:
  std::unique_ptr<LengthPolicy> inner_;
};

// The drafter "staged" of a drafter, the policy "passing" of a policy, the verifier "judging" of a verifier, and the
// drafter "mixed" of a verifier and a file.
Registries with_nesting() {
  Registries r = conformance::all_registries();
  r.drafters.add("staged",
                 {"",
                  "",
                  {component("drafter", {{"name", "ngram"}})},
                  [](const json& o, Host& host) { return std::make_unique<Around>(host.drafter(o.at("inner"))); },
                  states(Needs{.proposes = {Drawn::certain, Drawn::chain}})});
  r.policies.add("passing",
                 {"",
                  "",
                  {component("policy", nullptr)},
                  [](const json& o, Host& host) { return std::make_unique<Passing>(host.policy(o.at("inner"))); },
                  states(Budget{4, 3})});
  r.verifiers.add("judging",
                  {"",
                   "",
                   {component("verifier", nullptr, true)},
                   [](const json& o, Host& host) {
                     return host.verifier(o.at("inner").is_null() ? json{{"name", "coupled"}} : o.at("inner"));
                   },
                   states(Soundness{.takes = {Drawn::certain, Drawn::chain}})});
  Entry<Drafter> mixed;
  mixed.options = {component("verifier", {{"name", "of a plugin"}}),
                   {.name = "store", .type = "path", .standard = "s.bin", .meaning = ""},
                   {.name = "next", .type = "drafter", .standard = nullptr, .meaning = "", .optional = true}};
  mixed.traits = states(Needs{.proposes = {Drawn::certain}}), mixed.plugin = "mixed.so";
  r.drafters.add("mixed", mixed);
  Entry<Verifier> of_a_plugin;
  of_a_plugin.traits = states(Soundness()), of_a_plugin.plugin = "lib.so";
  r.verifiers.add("of a plugin", of_a_plugin);
  return r;
}

TEST(ComponentOptions, AreCompletedHoweverDeep) {
  const Registries r = with_nesting();
  const json ngram = r.drafters.complete({{"name", "ngram"}});
  EXPECT_EQ(r.drafters.complete({{"name", "staged"}}), (json{{"name", "staged"}, {"inner", ngram}}));
  json longer = ngram;
  longer["longest"] = 7;
  const json deep{{"name", "staged"}, {"inner", {{"name", "staged"}, {"inner", {{"name", "ngram"}, {"longest", 7}}}}}};
  const json whole = r.drafters.complete(deep);
  EXPECT_EQ(whole.at("inner").at("inner"), longer);
  EXPECT_EQ(r.drafters.complete(whole), whole);
  EXPECT_EQ(r.policies.complete({{"name", "passing"}, {"inner", {{"name", "fixed"}}}}).at("inner"),
            r.policies.complete({{"name", "fixed"}}));
  EXPECT_EQ(r.verifiers.complete({{"name", "judging"}}).at("inner"), nullptr);
}

TEST(ComponentOptions, AreCheckedHoweverDeep) {
  const Registries r = with_nesting();
  const auto refusal = [&](const json& inner) {
    return sentence_of([&] { (void)r.drafters.complete({{"name", "staged"}, {"inner", inner}}); });
  };
  EXPECT_EQ(refusal("ngram"), "option 'inner' of drafter 'staged' must be drafter (the inner one), not \"ngram\"");
  EXPECT_TRUE(says(refusal({{"name", "ngra"}}), "option 'inner' of drafter 'staged': unknown drafter 'ngra'"));
  EXPECT_TRUE(says(refusal({{"longest", 2}}), "option 'inner' of drafter 'staged': a drafter needs a name"));
  EXPECT_TRUE(says(refusal({{"name", "ngram"}, {"longst", 2}}), "option 'inner' of drafter 'staged': ", "'longst'"));
  EXPECT_TRUE(says(refusal({{"name", "draft_model"}}), "drafter 'draft_model' needs the option 'model'"));
  EXPECT_TRUE(says(refusal({{"name", "staged"}, {"inner", {{"name", "fixed"}}}}),
                   "option 'inner' of drafter 'staged': option 'inner' of drafter 'staged': unknown drafter 'fixed'"));
  EXPECT_EQ(sentence_of([&] { (void)r.policies.complete({{"name", "passing"}}); }),
            "policy 'passing' needs the option 'inner' (policy: the inner one)");
}

TEST(ComponentOptions, AreMadeByTheHost) {
  const Registries r = with_nesting();
  ReferenceBackend backend;
  const conformance::Models models = conformance::table_models({});
  const conformance::Subject subject{
      r,
      {{{"name", "staged"}, {"inner", {{"name", "draft_model"}, {"model", "table:same"}}}},
       {{"name", "passing"}, {"inner", {{"name", "fixed"}, {"length", 3}}}},
       {{"name", "judging"}, {"inner", {{"name", "speculative_sampling"}}}}}};
  const conformance::RunOutcome outcome =
      conformance::run_scenario({subject, {}, backend, models, conformance::random_requests(4, 3, 8, 12, 1)});
  EXPECT_GT(outcome.accepted, 0);
}

TEST(ComponentOptions, FilesAndPluginsAreThoseOfAllOfThem) {
  const Registries r = with_nesting();
  const ComponentFiles one = r.drafters.files({{"name", "mixed"}});
  EXPECT_EQ(one.paths, std::vector<std::string>{}) << "of a config that is not complete, what it says";
  const ComponentFiles all = r.drafters.files(r.drafters.complete(
      {{"name", "mixed"}, {"next", {{"name", "staged"}, {"inner", {{"name", "draft_model"}, {"model", "m"}}}}}}));
  EXPECT_EQ(all.paths, std::vector<std::string>{"s.bin"});
  EXPECT_EQ(all.plugins, (std::set<std::string>{"", "lib.so", "mixed.so"}));
  ASSERT_EQ(all.models.size(), 1u);
  EXPECT_EQ(all.models[0].directory, "m");
}

TEST(ComponentOptions, BelongToTheRegistriesThatAreAsked) {
  Registries r = with_nesting();
  const Registries before = r;
  Entry<Drafter> entry = r.drafters.find({{"name", "ngram"}});
  r.drafters.add("new", entry);
  const json with_new{{"name", "staged"}, {"inner", {{"name", "new"}}}};
  EXPECT_EQ(sentence_of([&] { (void)r.drafters.complete(with_new); }), "");
  EXPECT_TRUE(says(sentence_of([&] { (void)before.drafters.complete(with_new); }), "unknown drafter 'new'"));
  const Registry<Drafter> copy = r.drafters;
  entry.options.clear();
  r.drafters.replace("new", entry);
  EXPECT_EQ(copy.complete(with_new).at("inner").size(), copy.complete({{"name", "ngram"}}).size());
  Registries assigned;
  assigned = before;
  EXPECT_EQ(assigned.drafters.names(), before.drafters.names());
}

}  // namespace
}  // namespace foretoken::test

// What `foretoken check` says: beside what it checks a policy, what it refuses before any law runs, and the figures of
// a law that is broken.
#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include "experiments/conformance/check.h"
#include "experiments/report/check_report.h"
#include "tests/support/correct_plugins.h"
#include "tests/support/mutants.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace check_words {

using nlohmann::json;

const json kDraftModel{{"name", "draft_model"}, {"model", "table:far"}}, kSampling{{"name", "speculative_sampling"}};

Environment environment() {
  Environment e;
  e.devices.push_back({"cpu", [] { return make_cpu_backend(1); }});
  return e;
}

std::set<std::string> drafters_of(const std::vector<Candidate>& all) {
  std::set<std::string> names;
  for (const Candidate& c : all) names.insert(c.subject.configs.drafter.at("name"));
  return names;
}

// A drafter of single guesses that needs `needs`, or cannot be made.
Registries with_needy(const Needs& needs, bool is_made = true) {
  class Guessing : public Drafter {
   public:
    explicit Guessing(Backend& backend) : backend_(backend) {}
    std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override { return rooted(backend_, requests); }

   private:
    Backend& backend_;
  };
  Registries r = all_registries();
  r.drafters.add("needy",
                 entry_that<Drafter>(states(needs), [is_made](const json&, Host& host) -> std::unique_ptr<Drafter> {
                   if (!is_made) throw Error("the head of the drafter 'needy' cannot be read");
                   return std::make_unique<Guessing>(host.backend());
                 }));
  return r;
}

TEST(CheckWords, APolicyIsCheckedBesideADrafterOfItsPluginWhereThatHasOne) {
  const Registries r = with_correct_plugins(all_registries());
  const Choice fastest{r, nullptr, {{"name", "fastest"}}, nullptr};
  const std::set<std::string> own = drafters_of(candidates(fastest));
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(r.drafters.find({{"name", *own.begin()}}).plugin, "libcorrect.so");
  ASSERT_EQ(pairings(fastest).size(), 1u);
  EXPECT_TRUE(says(pairings(fastest)[0], "the policy 'fastest' was checked beside the drafter ", *own.begin(),
                   "--drafter names another"));
  const Choice built_in{all_registries(), nullptr, {{"name", "fixed"}, {"length", 2}}, nullptr};
  EXPECT_EQ(drafters_of(candidates(built_in)), std::set<std::string>{"draft_model"});
  const Choice named{r, kDraftModel, {{"name", "fastest"}}, nullptr};
  EXPECT_EQ(drafters_of(candidates(named)), std::set<std::string>{"draft_model"});
  EXPECT_TRUE(pairings(named).empty());
  CheckReport report;
  report.pairings = {"P beside D"};
  EXPECT_NE(check_text(report, {"foretoken check"}, false, 160).find("Beside what: P beside D\n"), std::string::npos);
  EXPECT_EQ(check_json(report, {"foretoken check"})["pairings"], json{"P beside D"});
}

TEST(CheckWords, ConfidenceThatNoDrafterServesIsOneSentence) {
  const Registries all = with_demanding_policy(all_registries());
  Registries r;
  r.drafters.add("ngram", all.drafters.find({{"name", "ngram"}}));
  r.policies.add("demanding", all.policies.find({{"name", "demanding"}}));
  EXPECT_TRUE(says(sentence_of([&] { candidates({r, nullptr, {{"name", "demanding"}}, nullptr}); }),
                   "the policy 'demanding' sets Budget::confidence, which no drafter", "--drafter"));
  const json ngram{{"name", "ngram"}};
  EXPECT_TRUE(says(sentence_of([&] { candidates({all, ngram, {{"name", "demanding"}}, nullptr}); }),
                   "the policy 'demanding' sets Budget::confidence, which the drafter 'ngram' does not serve"));
  EXPECT_EQ(drafters_of(candidates({all, nullptr, {{"name", "demanding"}}, nullptr})),
            std::set<std::string>{"draft_model"});
}

TEST(CheckWords, ANeedThatNothingServesIsOneSentence) {
  const json needy{{"name", "needy"}};
  const std::vector<std::pair<Needs, std::string>> cases{
      {{.proposes = {Drawn::certain}, .hidden = {1, 2}}, "after layer 2"},
      {{.proposes = {Drawn::aside}}, "names nodes drawn 'aside'"},
      {{.proposes = {Drawn::certain}, .ranks = -1}, "needs -1 ranks"}};
  for (const auto& [needs, what] : cases) {
    const Registries r = with_needy(needs);
    const std::string said = sentence_of([&] { candidates({r, needy, nullptr, nullptr}); });
    EXPECT_TRUE(says(said, "the drafter 'needy'", what));
    const Choice all{r, nullptr, nullptr, kSampling};
    EXPECT_FALSE(drafters_of(candidates(all)).contains("needy"));
    EXPECT_EQ(left_out(all), std::vector<std::string>{said}) << "what is not checked is named";
  }
}

TEST(CheckWords, WhatCannotBeMadeIsOneSentence) {
  const Registries r = with_needy({.proposes = {Drawn::certain}}, false);
  const std::string said = sentence_of([&] { candidates({r, {{"name", "needy"}}, nullptr, nullptr}); });
  EXPECT_EQ(said, "the head of the drafter 'needy' cannot be read");
}

// The reason for which the law is broken.
std::string reason(const Registries& registries, const json& drafter, const json& verifier, const std::string& law) {
  const CheckReport report =
      check(candidates({registries, drafter, nullptr, verifier}), environment(), {2, 600, {law}});
  for (const LawReport& r : report.laws)
    if (r.law == law && r.ruling == LawReport::Ruling::broken) return r.reason;
  return "";
}

TEST(CheckWords, AcceptanceSaysTheLevelWhatWasMeasuredAndWhatWasExpected) {
  const std::string said =
      reason(with_rule(all_registries(), Bug::never_accepts), kDraftModel, {{"name", "mutant"}}, "acceptance");
  EXPECT_TRUE(std::regex_search(
      said, std::regex("at level 1 of the drafts 0 of \\d+ were accepted, where p, q and the verifier's formula imply "
                       "[0-9.e+]+ \\(a rate of 0 instead of 0\\.\\d+, z = -[0-9.e+]+\\)")))
      << said;
}

TEST(CheckWords, SampledSaysWhichOutputsAreOff) {
  const std::string said =
      reason(with_rule(all_registries(), Bug::no_residual), kDraftModel, {{"name", "mutant"}}, "sampled");
  const std::regex words(
      "after Holm's correction: after \\[0 1 0 1\\] \\[(\\d \\d \\d)\\] came (\\d+) times instead of (\\d+) "
      "\\(z = (-?[0-9.e+]+)\\), \\[\\d \\d \\d\\] came .*, \\[\\d \\d \\d\\] came ");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(said, found, words)) << said;
  const double came = std::stod(found[2]), expected = std::stod(found[3]);
  EXPECT_EQ(came > expected, std::stod(found[4]) > 0);
  EXPECT_GT(std::abs(came - expected), 5 * std::sqrt(expected)) << "the farthest comes first";
}

// Keeps the pages of every sequence.
TEST(CheckWords, ACacheThatIsNotForgottenIsTheDraftersFault) {
  class Keeping : public Drafter {
   public:
    explicit Keeping(std::unique_ptr<Drafter> inner) : inner_(std::move(inner)) {}
    std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override { return inner_->draft(requests); }

   private:
    std::unique_ptr<Drafter> inner_;
  };
  Registries r = all_registries();
  r.drafters.add("keeping", entry_that<Drafter>(states_those_of(all_registries().drafters, kDraftModel),
                                                [](const json&, Host& host) {
                                                  return std::make_unique<Keeping>(host.drafter(kDraftModel));
                                                }));
  for (const char* law : {"cache", "memory", "batch"})
    EXPECT_TRUE(says(reason(r, {{"name", "keeping"}}, kSampling, law), "the drafter 'keeping' was to forget sequence ",
                     "left its rows in the cache of the model", "CachedModel::forget"))
        << law;
}

}  // namespace check_words
}  // namespace foretoken::test

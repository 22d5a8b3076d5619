// `foretoken check`: which laws it runs, its report of planted bugs, and its report if nothing was shown.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "experiments/conformance/laws.h"
#include "experiments/report/check_report.h"
#include "experiments/session/run_document.h"
#include "tests/laws/mutant_scenario.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

Environment environment() {
  Environment e;
  e.devices.push_back({"cpu", [] { return make_cpu_backend(1); }});
  return e;
}

CheckReport checked(const Registries& registries, const json& verifier, const std::vector<std::string>& laws = {}) {
  return check(candidates({registries, kDraftModel, nullptr, verifier}), environment(), {2, 600, laws});
}

std::set<std::string> broken(const CheckReport& report) {
  std::set<std::string> laws;
  for (const LawReport& r : report.laws)
    if (r.ruling == LawReport::Ruling::broken) laws.insert(r.law);
  return laws;
}

TEST(Check, OfASoundPairEveryLawHoldsOrReportsWhyItDoesNotApply) {
  const std::size_t verifiers = 8;  // the exact ones
  const CheckReport report = checked(all_registries(), nullptr);
  EXPECT_EQ(report.subjects.size(), verifiers);
  EXPECT_EQ(report.laws.size(), verifiers * kit_laws().size());
  EXPECT_TRUE(report.holds()) << report.sentences.front();
  for (const LawReport& r : report.laws) {
    EXPECT_EQ(r.reason.empty(), r.ruling == LawReport::Ruling::holds) << r.law;
    EXPECT_EQ(r.ran, r.scenarios) << r.law;
    EXPECT_TRUE(r.cases > 0 || r.ruling != LawReport::Ruling::holds) << r.law;
  }
  const json j = check_json(report, {"foretoken check --drafter draft_model", {{"libmine.so", "0123"}}});
  EXPECT_EQ(j["command"], "foretoken check --drafter draft_model");
  EXPECT_EQ(j["plugins"][0]["hash"], "0123");
  EXPECT_EQ(j["laws"].size(), kit_laws().size());
  for (const json& law : j["laws"]) EXPECT_EQ(law["findings"].size(), verifiers);
  for (const json& finding : j["laws"][0]["findings"])
    EXPECT_LE(finding.value("/figure/value"_json_pointer, 0.0), 1e-12);
  EXPECT_EQ(j["laws"][2]["law"], "sampled");
  EXPECT_EQ(j["laws"][2]["findings"][1]["power"]["power"], 0.99);
  EXPECT_TRUE(j["holds"]);
  const std::string text =
      check_text(report, {"foretoken check --drafter draft_model", {{"libmine.so", "0123"}}}, true, 160);
  for (const char* part :
       {"\nforetoken check --drafter draft_model\n", "\nplugin libmine.so, hash 0123\n", " cores, ", "Z\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  for (const LawReport& r :
       report.laws)  // target_match draws from all of p at every level: more outcomes than followed
    EXPECT_TRUE(r.cut == 0 || r.subject.ends_with("target_match")) << r.law << " of " << r.subject;
  for (const KitLaw& law : kit_laws()) {  // those that concern some of what was checked are stated
    const bool concerns = std::ranges::any_of(report.laws, [&](const LawReport& r) {
      return r.law == law.name && r.ruling != LawReport::Ruling::inapplicable;
    });
    EXPECT_EQ(text.find(law.name + ": " + law.statement) != std::string::npos, concerns) << law.name;
  }
}

TEST(Check, NoResidualIsFoundAndReportedInOneSentence) {
  const CheckReport report = checked(with_rule(all_registries(), Bug::no_residual), {{"name", "mutant"}},
                                     {"exact", "sampled", "greedy", "cache"});
  EXPECT_FALSE(report.holds());
  EXPECT_EQ(broken(report), (std::set<std::string>{"exact", "sampled"}));
  const std::string& sentence = report.sentences.front();
  EXPECT_NE(sentence.find("the law 'exact' is broken by draft_model table:far, fixed 4, mutant: "), std::string::npos)
      << sentence;
  EXPECT_EQ(sentence.find('\n'), std::string::npos);
  EXPECT_NE(check_text(report, {"foretoken check"}, false, 160).find(sentence), std::string::npos);
}

TEST(Check, ADeafVerifierFailsAcceptanceAndLimitsAlone) {
  EXPECT_EQ(broken(checked(with_rule(all_registries(), Bug::never_accepts), {{"name", "mutant"}},
                           {"acceptance", "limits", "greedy", "batch"})),
            (std::set<std::string>{"acceptance", "limits"}));
}

TEST(Check, RandomnessByBatchSlotFailsBatch) {
  EXPECT_TRUE(broken(checked(with_slots(all_registries()), {{"name", "mutant"}}, {"batch"})).contains("batch"));
}

TEST(Check, WhatDidNotBeginInTimeIsReported) {
  const CheckReport report =
      check(candidates({all_registries(), kDraftModel, nullptr, {{"name", "coupled"}}}), environment(), {1, 1e-9, {}});
  EXPECT_FALSE(report.holds());
  EXPECT_NE(report.sentences.front().find("was not shown"), std::string::npos);
  EXPECT_NE(check_text(report, {"foretoken check"}, false, 160).find("No law is broken, but not all was shown ("),
            std::string::npos);
}

TEST(Check, AScenariosDepthIsCutWhereTheDrawsFallInTooManyWays) {
  const Subject subject{all_registries(),
                        {kDraftModel, {{"name", "fixed"}, {"length", 2}}, {{"name", "speculative_sampling"}}}};
  ExactCase c{.target = {.vocab = 3, .order = 2, .seed = 81}, .prompts = {{0, 1}}, .tokens = 4};
  const Finding whole = exact(subject, c);
  EXPECT_EQ(whole.cut_to, 0);
  c.most_ways = whole.cases;
  EXPECT_EQ(exact(subject, c).cases, whole.cases);
  c.most_ways = whole.cases - 1;
  const Finding cut = exact(subject, c);
  EXPECT_TRUE(cut.holds) << cut.what;
  EXPECT_EQ(cut.cut_to, 3);
  EXPECT_LT(cut.cases, whole.cases);
  c.most_ways = 1;
  EXPECT_EQ(exact(subject, c).cut_to, 2);
  c.least = 3;
  EXPECT_EQ(exact(subject, c).cut_to, 3);
}

// The built-in drafter with the most outcomes of draws: a model near the target, about half of whose drafts are
// rejected.
TEST(Check, TheScenariosOfThisTreeAreLookedAtWhole) {
  const CheckReport report = check(candidates({all_registries(),
                                               {{"name", "draft_model"}, {"model", "table:other"}},
                                               nullptr,
                                               {{"name", "speculative_sampling"}}}),
                                   environment(), {2, 600, {"exact"}});
  EXPECT_TRUE(report.holds());
  for (const LawReport& r : report.laws) EXPECT_EQ(r.cut, 0) << r.law << " of " << r.subject;
}

TEST(Check, WhatFallsInMoreWaysThanAreFollowedIsCutAndCounted) {
  Environment shallow = environment();
  shallow.most_ways = 20;
  const std::vector<Candidate> all =
      candidates({all_registries(), kDraftModel, nullptr, {{"name", "speculative_sampling"}}});
  int three = 0, two = 0;
  for (const LawCase& scenario : exact_cases(all.front(), shallow)) {
    const Finding f = scenario.run();
    EXPECT_TRUE(f.holds) << scenario.scenario << ": " << f.why;
    const bool of_two_tokens = scenario.scenario.starts_with("2 tokens,");
    if (f.cut_to == 0 && !of_two_tokens) continue;
    EXPECT_EQ(f.cut_to, of_two_tokens ? 3 : 2)
        << scenario.scenario << (of_two_tokens ? ": a second round after a draft is still seen" : "");
    ++(of_two_tokens ? three : two);
  }
  EXPECT_GT(three, 0);
  EXPECT_GT(two, 0);
  const CheckReport report = check(all, shallow, {2, 600, {"exact", "options"}});
  EXPECT_TRUE(report.holds());
  for (const LawReport& r : report.laws) {
    if (r.law == "exact") {
      EXPECT_EQ(r.cut, three + two);
      EXPECT_EQ(r.least_depth, 2);
    }
    if (r.law == "options") {
      EXPECT_GT(r.cut, 5);
      EXPECT_EQ(r.least_depth, 2);
    }
  }
}

TEST(Check, AFailedSampleReportsTheReason) {
  struct Refusing : Verifier {
    void verify(Backend&, const Trials&, Tensor) override { throw std::runtime_error("no verdict today"); }
  };
  Registries registries = all_registries();
  registries.verifiers.add("refusing",
                           entry_that<Verifier>(states(Soundness{{Drawn::certain, Drawn::chain}}),
                                                [](const json&, Host&) { return std::make_unique<Refusing>(); }));
  const CheckReport report = checked(registries, {{"name", "refusing"}}, {"sampled"});
  EXPECT_EQ(broken(report), std::set<std::string>{"sampled"});
  ASSERT_EQ(report.sentences.size(), 1u);
  EXPECT_NE(report.sentences[0].find("no verdict today"), std::string::npos) << report.sentences[0];
}

TEST(Check, ALawThatWasNotNamedIsListedAsNotRun) {
  const CheckReport report = checked(all_registries(), {{"name", "coupled"}}, {"cache"});
  EXPECT_EQ(report.laws.size(), kit_laws().size());
  EXPECT_EQ(std::ranges::count(report.laws, LawReport::Ruling::inapplicable, &LawReport::ruling),
            long(kit_laws().size()) - 1);
  EXPECT_NE(
      check_text(report, {"foretoken check"}, false, 160).find("The laws that were run hold, others were not run ("),
      std::string::npos);
  const std::string text = check_text(report, {"foretoken check", {}, {"cache"}}, false, 160);
  EXPECT_NE(text.find("\ncache  "), std::string::npos) << text;
  EXPECT_NE(text.find("\ncache: "), std::string::npos) << text;
  EXPECT_EQ(text.find("\nexact"), std::string::npos) << text;
  EXPECT_THROW(checked(all_registries(), {{"name", "coupled"}}, {"cash"}), std::exception);
  EXPECT_FALSE(checked(all_registries(), {{"name", "coupled"}}, {"mutations"}).holds()) << "nothing was shown";
}

TEST(Check, AnUnsoundPairIsOneSentence) {
  Registries registries = all_registries();
  registries.verifiers.add(
      "picky", entry_that<Verifier>(states(Soundness()), [](const json&, Host&) -> std::unique_ptr<Verifier> {
        struct Picky : Verifier {
          void verify(Backend&, const Trials&, Tensor) override {}
        };
        return std::make_unique<Picky>();
      }));
  EXPECT_THROW(candidates({registries, kDraftModel, nullptr, {{"name", "picky"}}}), std::exception);
}

// Drafts from a file that the kit does not know.
class OfADatastore : public Drafter {
 public:
  OfADatastore(Host& host, const json& options) : backend_(host.backend()) {
    if (options.at("store") != "real.bin")
      throw Error("the datastore " + options.at("store").dump() + " cannot be read");
    (void)host.load(ModelChoice::read(options.at("model")));
  }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < requests.size(); ++i)
      for (int n = 0; n < requests[i].budget.chain(); ++n) trees[i].guess(n, requests[i].sequence->last());
    return trees;
  }

 private:
  Backend& backend_;
};

Registries with_datastore() {
  Registries r = all_registries();
  r.drafters.add("stored",
                 {"",
                  "",
                  {{"store", "path", nullptr, "the file of the datastore"}, {"model", "model", nullptr, "that ranks"}},
                  [](const json& o, Host& host) { return std::make_unique<OfADatastore>(host, o); },
                  states(Needs{.proposes = {Drawn::certain}})});
  return r;
}

TEST(Check, APathIsTheUsersAndNoModel) {
  const json rest{{"name", "stored"}, {"store", "real.bin"}}, coupled{{"name", "coupled"}};
  const auto all = candidates({with_datastore(), rest, nullptr, coupled});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all.front().subject.configs.drafter["model"], "table:other") << "the kit gives the models";
  EXPECT_EQ(all.front().model_options, std::vector<std::string>{"model"});
  // What a datastore holds is not what its model would propose: the law of limits expects no acceptance of it.
  const CheckReport report = check(all, environment(), {2, 600, {"exact", "cache", "memory", "limits"}});
  EXPECT_TRUE(report.holds()) << report.sentences.front();
}

TEST(Check, WhoNeedsAPathIsLeftOutAndNamedUnlessAskedFor) {
  const Registries registries = with_datastore();
  const json coupled{{"name", "coupled"}};
  const std::string asked_for = sentence_of([&] { candidates({registries, {{"name", "stored"}}, nullptr, coupled}); });
  EXPECT_TRUE(says(asked_for, "the drafter 'stored' needs the option 'store' (path: the file of the datastore)",
                   R"(--drafter '{"name": "stored", "store": ...}')"));
  const Choice all_components{registries, nullptr, nullptr, coupled};
  EXPECT_EQ(candidates(all_components).size(), candidates({all_registries(), nullptr, nullptr, coupled}).size());
  EXPECT_EQ(left_out(all_components), std::vector<std::string>{asked_for});
  EXPECT_TRUE(left_out({registries, {{"name", "ngram"}}, nullptr, coupled}).empty());
  CheckReport report;
  report.left_out = left_out(all_components);
  EXPECT_NE(check_text(report, {"foretoken check"}, false, 160).find("Not checked: " + asked_for + "\n"),
            std::string::npos);
  EXPECT_EQ(check_json(report, {"foretoken check"})["left_out"], json{asked_for});
}

TEST(Check, EverySamplingOptionOfARunHasALine) {
  std::set<std::string> keys;
  for (const SamplingOption& o : sampling_options()) keys.insert(o.key);
  int found = 0;
  for (const RunKey& key : run_keys()) {
    if (key.pointer.rfind("/sampling/", 0) != 0) continue;
    const std::string name = key.pointer.substr(10);
    ++found;
    EXPECT_TRUE(keys.contains(name)) << "the sampling option " << name
                                     << " is not in experiments/conformance/options.cpp";
  }
  EXPECT_GE(found, 6);
}

TEST(Check, ASilentlyIgnoredOptionIsNeitherExactNorRefused) {
  const SamplingOption top_p = *std::ranges::find(sampling_options(), "top_p", &SamplingOption::key);
  const Subject sane{all_registries(),
                     {kDraftModel, {{"name", "fixed"}, {"length", 2}}, {{"name", "speculative_sampling"}}}};
  EXPECT_TRUE(exact_or_refused(sane, top_p).holds);
  Subject never_accepting = sane;
  never_accepting.registries = with_unwarped_q(all_registries());
  EXPECT_FALSE(exact_or_refused(never_accepting, top_p).holds);
  SamplingOption invalid = top_p;
  invalid.sampling.top_p = 2;
  const OptionFinding refused = exact_or_refused(sane, invalid);
  EXPECT_TRUE(refused.holds);
  EXPECT_NE(refused.refusal.find("top_p"), std::string::npos);
}

}  // namespace
}  // namespace foretoken::test

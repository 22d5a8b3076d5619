// `foretoken check` of components that ask the host for others, of a rule that reads raw distributions, and of rules
// for siblings drawn without repeats.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "experiments/conformance/check.h"
#include "experiments/conformance/components.h"
#include "experiments/conformance/laws.h"
#include "kernels/error.h"
#include "tests/framework/components/children_rules.h"
#include "tests/laws/mutant_scenario.h"
#include "tests/support/around.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

CheckReport report_on(const Registries& registries, const json& drafter, const json& verifier,
                      const std::vector<std::string>& laws) {
  Environment environment;
  environment.devices.push_back({"cpu", [] { return make_cpu_backend(1); }});
  environment.most_ways = 2000;
  return check(candidates({registries, drafter, nullptr, verifier}), environment, {2, 600, laws});
}

// Every law that was chosen holds, and each had cases.
void expect_shown(const CheckReport& report, const std::vector<std::string>& laws) {
  for (const std::string& sentence : report.sentences) ADD_FAILURE() << sentence;
  for (const LawReport& r : report.laws)
    EXPECT_TRUE(std::ranges::find(laws, r.law) == laws.end() || (r.ruling == LawReport::Ruling::holds && r.cases > 0))
        << r.law << ": " << r.reason;
}

std::set<std::string> broken(const CheckReport& report) {
  std::set<std::string> laws;
  for (const LawReport& r : report.laws)
    if (r.ruling == LawReport::Ruling::broken) laws.insert(r.law);
  return laws;
}

// Throws, since components are made in processes whose expectations nobody reads.
void expect_target(Host& host) {
  if (host.target_model()->info().name != host.target().name) throw Error("another model is the target");
}

// The drafter "around" is made of itself so many times, and of a draft model in the end.
Registries with_around() {
  Registries r = all_registries();
  Entry<Drafter> entry{"",
                       "",
                       {{"times", "integer", 0, ""}},
                       [](const json& o, Host& host) {
                         expect_target(host);
                         const int times = o.at("times");
                         const json inner = times > 0 ? json{{"name", "around"}, {"times", times - 1}} : kDraftModel;
                         return std::make_unique<Around>(host.drafter(inner));
                       },
                       states(Needs{{Drawn::chain}})};
  r.drafters.add("around", entry);
  return r;
}

TEST(CheckInner, ADrafterMadeOfAnotherHolds) {
  const std::vector<std::string> laws{"memory", "causal", "device"};
  for (const int times : {0, 1})
    expect_shown(report_on(with_around(), {{"name", "around"}, {"times", times}}, kSampling, laws), laws);
}

TEST(CheckInner, AVerifierMadeOfAnotherHolds) {
  const std::vector<std::string> laws{"greedy", "device"};
  Registries r = all_registries();
  r.verifiers.add("around", entry_that<Verifier>(states(Soundness{{Drawn::certain, Drawn::chain}, "exact"}),
                                                 [](const json&, Host& host) {
                                                   expect_target(host);
                                                   return host.verifier(kSampling);
                                                 }));
  expect_shown(report_on(r, kDraftModel, {{"name", "around"}}, laws), laws);
}

// A head is fed its own states, not those that another part needs too.
TEST(CheckInner, AHeadBesideAnotherHolds) {
  const std::vector<std::string> laws{"cache"};
  Registries r = all_registries();
  const json head{{"random", "small"}};
  const Option first{"first", "drafter", {{"name", "eagle"}, {"head", head}}, ""},
      second{"second", "drafter", {{"name", "eagle3"}, {"head", head}}, ""};
  r.drafters.add("heads",
                 {"",
                  "",
                  {first, second},
                  [](const json& o, Host& host) { return std::make_unique<Around>(host.drafter(o.at("first"))); },
                  states(Needs{{Drawn::chain}})});
  expect_shown(report_on(r, {{"name", "heads"}}, kSampling, laws), laws);
}

// Speculative sampling of chains, but only below nodes whose raw distribution gives the token 0 enough: no token of the
// draft decides that, so it is exact.
struct WhereZeroIsLikely {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), t.q(node));
      const int c = t.raw(node)(0) * t.vocab > 0.7 ? t.child(node, node) : -1;
      if (c < 0) return v.finish(lane.draw(r, {Role::bonus, std::uint32_t(node), 0})), v;
      const Token x = t.tokens[c];
      if (!lane.accept(t.certain(c) ? r(x) : r(x) / t.q(node)(x), {Role::accept, std::uint32_t(c), 0})) {
        if (t.certain(c))
          lane.reject_guess(r, x);
        else
          lane.reject_draw(r);
        return v.finish(lane.draw(r, {Role::residual, std::uint32_t(node), 0})), v;
      }
      v.follow(node = c, x);
    }
  }
};

TEST(CheckInner, ARuleThatReadsRawDistributionsHolds) {
  const std::vector<std::string> laws{"exact", "device"};
  Registries r = all_registries();
  r.verifiers.add(
      "raw",
      entry_that<Verifier>(
          states(Soundness{.takes = {Drawn::certain, Drawn::chain}, .acceptance = Acceptance::other, .raw = true}),
          [](const json&, Host&) { return std::make_unique<RuleVerifier<WhereZeroIsLikely>>(); }));
  const CheckReport report = report_on(r, kDraftModel, {{"name", "raw"}}, laws);
  expect_shown(report, laws);
  for (const LawReport& law : report.laws) EXPECT_TRUE(law.law != "device" || (law.accepted > 0 && law.rejected > 0));
}

template <class Rule> Registries judging_siblings() {
  Registries r = all_registries();
  r.verifiers.add("siblings",
                  entry_that<Verifier>(states(Soundness{{Drawn::chain, Drawn::without_replacement}, "exact"}),
                                       [](const json&, Host&) { return std::make_unique<RuleVerifier<Rule>>(); }));
  return r;
}

// Reads the q of every node, which a certain guess does not have.
struct OfDrawnSiblings : WithoutReplacement<false> {
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    for (int n = 1; n < t.nodes; ++n)
      if (t.certain(n)) throw Error("node " + std::to_string(n) + " is certain");
    return WithoutReplacement<false>::operator()(lane, t);
  }
};

TEST(CheckInner, ARuleForDrawnSiblingsIsGivenNoCertainGuessesOnAnotherDevice) {
  Registries r = with_scripted(all_registries());
  r.verifiers.add("siblings", entry_that<Verifier>(states(Soundness{{Drawn::without_replacement}, "exact"}),
                                                   [](const json&, Host&) {
                                                     return std::make_unique<RuleVerifier<OfDrawnSiblings>>();
                                                   }));
  ReferenceBackend reference;
  const auto cpu = make_cpu_backend(1);
  const Subject siblings{
      r, {random_tree(1, "without_replacement"), {{"name", "fixed"}, {"length", 3}}, {{"name", "siblings"}}}};
  const Finding found = same_verdicts(siblings, {.vocab = 61}, reference, *cpu);
  EXPECT_TRUE(found.holds);
  EXPECT_GT(found.accepted, 0);
  EXPECT_GT(found.rejected, 0);
}

// A rule that takes no certain guesses is tried with random drafts as well.
TEST(CheckInner, SiblingsWithoutRepeatsThatAreJudgedAsIndependentFailLimits) {
  const json verifier{{"name", "siblings"}};
  const std::vector<std::string> laws{"limits"};
  expect_shown(report_on(judging_siblings<WithoutReplacement<false>>(), kDraftModel, verifier, laws), laws);
  const CheckReport planted = report_on(judging_siblings<WithoutReplacement<true>>(), kDraftModel, verifier, laws);
  EXPECT_EQ(broken(planted), std::set<std::string>{"limits"});
  ASSERT_FALSE(planted.sentences.empty());
  EXPECT_NE(planted.sentences[0].find("total variation"), std::string::npos) << planted.sentences[0];
}

}  // namespace
}  // namespace foretoken::test

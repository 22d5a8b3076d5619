// `foretoken check` of components with faults that would end a process, or that are easily blamed on something else:
// there is a report, and it names who did what, in which law and scenario.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "experiments/conformance/check.h"
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
  e.most_ways = 2000;
  return e;
}

// Drafts the last token again, and then does what a test plants.
class Repeating : public Drafter {
 public:
  using Fault = std::function<void(std::span<const DraftRequest>, std::vector<DraftTree>&)>;
  Repeating(Backend& backend, Fault fault) : backend_(backend), fault_(std::move(fault)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i)
      for (int n = 0; n + 1 < requests[i].budget.chain(); ++n) trees[i].guess(n, requests[i].sequence->last());
    fault_(requests, trees);
    return trees;
  }

 private:
  Backend& backend_;
  Fault fault_;
};

Registries with_fault(const Repeating::Fault& fault) {
  Registries r = all_registries();
  Entry<Drafter> entry{"",
                       "",
                       {{"model", "model", nullptr, "not read"}},
                       [fault](const json&, Host& host) { return std::make_unique<Repeating>(host.backend(), fault); },
                       states(Needs{{Drawn::certain, Drawn::chain}})};
  r.drafters.add("faulty", entry);
  return r;
}

CheckReport report_on(const Repeating::Fault& fault, const std::vector<std::string>& laws,
                      HowToCheck how = {2, 600, {}}) {
  how.laws = laws;
  return check(candidates({with_fault(fault), {{"name", "faulty"}}, nullptr, kSampling}), environment(), how);
}

// The fault in every tree that may have nodes.
Repeating::Fault in_trees(const std::function<void(DraftTree&)>& fault) {
  return [fault](std::span<const DraftRequest> requests, std::vector<DraftTree>& trees) {
    for (std::size_t i = 0; i < trees.size(); ++i)
      if (requests[i].budget.drafts()) fault(trees[i]);
  };
}

template <class Rule> CheckReport report_on_rule(const std::vector<std::string>& laws) {
  Registries r = all_registries();
  r.verifiers.add("faulty",
                  entry_that<Verifier>(states(Soundness{{Drawn::certain, Drawn::chain}, "exact"}),
                                       [](const json&, Host&) { return std::make_unique<RuleVerifier<Rule>>(); }));
  const json drafter{{"name", "draft_model"}, {"model", "table:far"}};
  return check(candidates({r, drafter, nullptr, {{"name", "faulty"}}}), environment(), {2, 600, laws});
}

// Each of these laws is broken, for a reason that holds all of these words.
void expect_broken(const CheckReport& report, const std::vector<std::string>& laws,
                   const std::vector<std::string>& words) {
  for (const std::string& law : laws) {
    const auto r = std::ranges::find(report.laws, law, &LawReport::law);
    ASSERT_NE(r, report.laws.end()) << law;
    EXPECT_EQ(r->ruling, LawReport::Ruling::broken) << law << ": " << r->reason;
    for (const std::string& word : words)
      EXPECT_NE(r->reason.find(word), std::string::npos) << law << ": " << r->reason;
  }
}

TEST(CheckFaults, NoneOfTheseIsFoundInADrafterWithoutFaults) {
  const CheckReport report = report_on([](auto, auto&) {}, {"exact", "memory", "cache", "greedy"});
  EXPECT_TRUE(report.holds()) << report.sentences.front();
}

TEST(CheckFaults, TooFewTreesAreNamed) {
  const auto none = [](std::span<const DraftRequest> requests, std::vector<DraftTree>& trees) {
    if (requests.back().budget.drafts()) trees = std::vector<DraftTree>();
  };
  expect_broken(report_on(none, {"exact", "memory", "batch"}), {"exact", "memory", "batch"},
                {"the drafter 'faulty' returned 0 trees for ", "; Drafter::draft must return one tree for each"});
}

TEST(CheckFaults, ANodeBelowOneThatDoesNotExistIsNamed) {
  const auto orphan = in_trees([](DraftTree& tree) { tree.grow(1 << 28, Drawn::chain); });
  expect_broken(report_on(orphan, {"exact", "limits"}), {"exact", "limits"},
                {"the drafter 'faulty' returned a tree whose node ", " has the parent 268435456"});
  const auto own_parent = in_trees([](DraftTree& tree) { tree.grow(tree.nodes, Drawn::chain); });
  expect_broken(report_on(own_parent, {"exact", "limits"}), {"exact", "limits"},
                {"the drafter 'faulty' returned a tree whose node ", "; a parent must come before its children"});
}

TEST(CheckFaults, ANodeDrawnFromNothingIsNamed) {
  const auto drawn = in_trees([](DraftTree& tree) {
    *tree.tokens.row<Token>(tree.nodes) = 0;
    tree.grow(tree.nodes - 1, Drawn::chain);
  });
  expect_broken(report_on(drawn, {"exact", "limits"}), {"exact", "limits"},
                {"the drafter 'faulty' proposed node ", " as drawn but gave no distribution q for its parent"});
}

TEST(CheckFaults, ATreeWithoutARootIsNamed) {
  const auto nothing = in_trees([](DraftTree& tree) { tree.nodes = 0; });
  expect_broken(report_on(nothing, {"exact", "batch"}), {"exact", "batch"},
                {"the drafter 'faulty' returned a tree without a root"});
}

TEST(CheckFaults, WhatADrafterThrowsNamesIt) {
  const auto refuse = [](auto, auto&) { throw Error("the table is empty"); };
  expect_broken(report_on(refuse, {"exact", "memory", "batch"}), {"exact", "memory", "batch"},
                {"the drafter 'faulty' failed in Drafter::draft: the table is empty"});
  const auto throwing = [](auto, auto&) { throw std::runtime_error("the table is empty"); };
  expect_broken(report_on(throwing, {"exact", "memory", "batch"}), {"exact", "memory", "batch"},
                {"the drafter 'faulty' failed in Drafter::draft, which threw: the table is empty"});
}

// Not guarded against threads: one process runs one scenario at a time.
TEST(CheckFaults, StaticStateNeedsNoLock) {
  static std::map<int, std::vector<int>> table;
  const auto count = [](std::span<const DraftRequest> requests, auto&) {
    for (int k = 0; k < 500 * int(requests.size()); ++k) {
      table[k].push_back(k);
      if (table.size() > 40) table.clear();
    }
  };
  const CheckReport report = report_on(count, {"memory", "cache", "batch", "greedy"}, {4, 600, {}});
  EXPECT_TRUE(report.holds()) << report.sentences.front();
}

struct NeverFinishes {
  template <class Lane> Verdict operator()(Lane&, const Trial&) const { return {}; }
};

TEST(CheckFaults, ARuleThatDoesNotFinishIsNotTheCheckpointsFault) {
  const CheckReport report = report_on_rule<NeverFinishes>({"exact", "rounds", "greedy"});
  expect_broken(report, {"exact", "rounds", "greedy"}, {"Verdict::finish"});
  for (const std::string& s : report.sentences) EXPECT_EQ(s.find("checkpoint"), std::string::npos) << s;
}

// Speculative sampling of chains that asks every node by the name of the first.
struct OneName {
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      const int c = t.child(node, node);
      auto r = lane.open(t.p(node), t.q(node));
      if (c < 0) return v.finish(lane.draw(r, {Role::bonus, std::uint32_t(node), 0})), v;
      const Token x = t.tokens[c];
      if (!lane.accept(t.certain(c) ? r(x) : r(x) / t.q(node)(x), {Role::accept, 1, 0})) {
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

TEST(CheckFaults, ADrawNameThatIsMetTwiceIsNamed) {
  expect_broken(report_on_rule<OneName>({"exact", "rounds"}), {"exact", "rounds"},
                {"total variation", "the draw {Role::accept, 1, 0} was asked for twice in one round"});
}

// Of the laws that were run, those that never met the fault hold.
void expect_report(const CheckReport& report, const std::string& how) {
  expect_broken(report, {"memory", "batch"}, {"(", ") its process ", how});
  for (const LawReport& r : report.laws)
    EXPECT_TRUE(r.law != "greedy" || r.ruling == LawReport::Ruling::holds) << r.reason;
}

// Does it where sequences are sampled; not at temperature 0, where it would also be met by the law `greedy`.
Repeating::Fault at_temperature_1(const std::function<void()>& fault) {
  return [fault](std::span<const DraftRequest> requests, auto&) {
    if (std::ranges::any_of(requests, [](const DraftRequest& r) { return r.sequence->sampling.temperature == 1; }))
      fault();
  };
}

TEST(CheckFaults, ASignalEndsOneScenarioAndNotTheReport) {
  const std::vector<std::string> laws{"memory", "batch", "greedy"};
  expect_report(report_on(at_temperature_1([] { std::raise(SIGSEGV); }), laws),
                "ended with signal 11 (Segmentation fault)");
  expect_report(report_on(at_temperature_1([] {
                            std::fprintf(stderr, "the plugin's\nlast\twords\n");
                            std::abort();
                          }),
                          laws),
                "ended with signal 6 (Aborted); its last line: last\\u0009words");
}

TEST(CheckFaults, ManyWordsStopNothing) {
  testing::internal::CaptureStderr();
  const CheckReport report = report_on(at_temperature_1([] { std::puts(std::string(10000, 'x').c_str()); }), {"cache"});
  EXPECT_GT(testing::internal::GetCapturedStderr().size(), 1000000u);
  EXPECT_TRUE(report.holds()) << report.sentences.front();
}

TEST(CheckFaults, AnExitEndsOneScenarioAndNotTheReport) {
  expect_report(report_on(at_temperature_1([] { std::exit(0); }), {"memory", "batch", "greedy"}),
                "ended with exit code 0");
}

TEST(CheckFaults, WhatDoesNotEndIsStoppedAndNotShown) {
  const auto forever = at_temperature_1([] {
    for (std::atomic<int> i = 0; i >= 0; i = i ^ 1) {
    }
  });
  const CheckReport report =
      report_on(forever, {"cache", "greedy"}, {.threads = 2, .seconds = 600, .scenario_seconds = 1});
  for (const LawReport& r : report.laws) {
    EXPECT_TRUE(r.law != "greedy" || r.ruling == LawReport::Ruling::holds) << r.reason;
    if (r.law != "cache") continue;
    EXPECT_EQ(r.ruling, LawReport::Ruling::not_shown);
    EXPECT_NE(r.reason.find(") did not end within 1 s"), std::string::npos) << r.reason;
  }
  EXPECT_FALSE(report.holds());
}

TEST(CheckFaults, WhatFailsWhileItIsMadeIsTheReason) {
  const auto prepare = [](const std::function<void()>& fault) {
    return [fault]() -> Prepared {
      fault();
      return {};
    };
  };
  const HowToCheck how{.scenario_seconds = 0.5};
  const auto said = [&](const std::function<void()>& fault) {
    return sentence_of([&] { (void)check(prepare(fault), how); });
  };
  EXPECT_TRUE(says(said([] { throw Error("there is no table"); }), "there is no table"));
  EXPECT_TRUE(says(said([] { std::raise(SIGSEGV); }), "plugins were loaded", "signal 11 (Segmentation fault)"));
  EXPECT_TRUE(says(said([] {
                     for (;;) sleep(1);
                   }),
                   "plugins were loaded", "did not end within 0.5 s"));
}

}  // namespace
}  // namespace foretoken::test

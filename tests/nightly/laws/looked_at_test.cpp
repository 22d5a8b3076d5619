// What the scenarios of each law look at: cases, drafts accepted and rejected, and what else occurred, of subjects of
// every sort. A law that looks at less than before still holds, so tests/data/laws/ has the numbers, one file for each
// law. With FORETOKEN_UPDATE_GOLDEN set the files are written anew.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "experiments/conformance/check.h"
#include "experiments/conformance/components.h"
#include "experiments/conformance/rounds.h"
#include "tests/support/mutants.h"
#include "tests/support/rule_mutants.h"
#include "tests/support/source.h"
#include "tests/support/states.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// Drafts 1, 2, 3, 4, 1, ... tokens, by the number of rounds.
class InTurns : public LengthPolicy {
 public:
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (const PastOnly& p : past) all.push_back({.nodes = 2 + int(p.rounds % 4), .depth = 1 + int(p.rounds % 4)});
    return all;
  }
};

// Where it matters little, rules are those of tests, since built-in ones may change. The last one does not say that
// there is no formula of its acceptance, so that law is broken.
std::vector<Candidate> subjects_of_every_sort() {
  const auto rule = [](MutantRule of) { return with_mutant_rule(all_registries(), of, RuleBug::none); };
  const auto drafter = [](const std::string& model) { return json{{"name", "draft_model"}, {"model", model}}; };
  const json fixed{{"name", "fixed"}, {"length", 4}}, ruled{{"name", "rule"}}, mutant{{"name", "mutant"}},
      tree{{"name", "draft_tree"}, {"model", "table:other"}, {"shape", {2, 2}}};
  Registries chains = with_rule(all_registries(), Bug::none);
  chains.policies.add("in_turns",
                      entry_that<LengthPolicy>(states(Budget{.nodes = 5, .depth = 4}),
                                               [](const json&, Host&) { return std::make_unique<InTurns>(); }));
  return {
      candidate({chains, {drafter("table:far"), fixed, mutant}}, false),
      candidate({chains, {drafter("table:other"), {{"name", "in_turns"}}, mutant}}, true, false),
      candidate({rule(MutantRule::recursive), {tree, fixed, ruled}}, false),
      candidate({with_scripted(rule(MutantRule::recursive)), {random_tree(1, "without_replacement"), fixed, ruled}},
                false, false),
      candidate({all_registries(), {drafter("table:other"), fixed, {{"name", "block_verification"}}}}, false, false),
      candidate({with_scripted(all_registries()), {random_tree(2, "independent"), fixed, {{"name", "k_seq"}}}}, false,
                false),
      candidate({all_registries(), {drafter("table:other"), fixed, {{"name", "coupled"}}}}, false),
      candidate({rule(MutantRule::kept_above), {drafter("table:other"), fixed, ruled}}, false)};
}

Environment environment() {
  Environment e;
  e.devices.push_back({"cpu", [] { return make_cpu_backend(1); }});
  e.trained = [](Backend& backend) { return tiny_models(backend); };
  e.most_ways = 400;
  return e;
}

std::string text_of(const KitLaw& law, const Candidate& c, const Finding& f) {
  std::string text = std::to_string(f.cases) + " cases, " + std::to_string(f.accepted) + " accepted, " +
                     std::to_string(f.rejected) + " rejected";
  for (const auto& [what, n] : f.seen) text += ", " + what + " " + std::to_string(n);
  if (f.cut_to > 0) text += ", cut to " + std::to_string(f.cut_to);
  if (law.measure == "greatest |z|") text += ", z " + conformance::text_of(f.measure);
  const std::string subject = c.subject.text();
  return text + (f.what.starts_with(subject) ? f.what.substr(subject.size()) : "");
}

// One line for each scenario, or why the law does not apply.
std::string looked_at(const KitLaw& law) {
  std::string text;
  for (const Candidate& c : subjects_of_every_sort()) {
    text += c.subject.text() + "\n";
    if (const std::string why = law.inapplicable(c, environment()); !why.empty()) {
      text += "  does not apply: " + why + "\n";
      continue;
    }
    for (const LawCase& scenario : law.cases(c, environment())) {
      const Finding f = scenario.run();
      text += "  " + scenario.scenario + ": " + (f.holds ? "" : "broken, ") + text_of(law, c, f) + "\n";
    }
  }
  return text;
}

class Laws : public testing::TestWithParam<std::string> {};

void expect_written(const std::string& name, const std::string& found) {
  const std::string file = "tests/data/laws/" + name + ".txt";
  if (std::getenv("FORETOKEN_UPDATE_GOLDEN"))
    std::ofstream(std::filesystem::path(FORETOKEN_SOURCE_DIR) / file) << found;
  const auto now = split_lines(found), before = split_lines(read_source(file));
  ASSERT_EQ(now.size(), before.size());
  for (std::size_t i = 0; i < now.size(); ++i) EXPECT_EQ(now[i], before[i]) << file << ", line " << i + 1;
}

TEST_P(Laws, LookAtWhatIsWrittenDown) {
  expect_written(GetParam(), looked_at(*std::ranges::find(kit_laws(), GetParam(), &KitLaw::name)));
}

// All that ./foretoken check runs, but for `sampled`, whose samples are too large for this.
INSTANTIATE_TEST_SUITE_P(LookedAt, Laws,
                         testing::Values("exact", "rounds", "greedy", "coupled", "batch", "memory", "cache",
                                         "acceptance", "limits", "options", "causal", "device"),
                         [](const auto& instance) { return instance.param; });

// A tree on which a verifier is judged: its nodes as parent and kind, absent ones with a minus sign; and the most
// probable tokens of target and draft below some nodes.
std::string text_of(const RoundCase& c) {
  std::string text = c.name + ": " + std::to_string(c.vocab) + " tokens, temperature " +
                     conformance::text_of(c.warp.temperature) + ", top_k " + std::to_string(c.warp.top_k) + ", seed " +
                     std::to_string(c.seed) + ";";
  for (const RoundNode& n : c.nodes)
    text += " " + std::to_string(n.parent) + std::string(name_of(n.drawn)).substr(0, 2) + (n.absent ? "-" : "");
  text += ";";
  for (const std::vector<Token>& path : {std::vector<Token>{}, {0}, {0, 0, 0, 0, 0}})
    for (const bool draft : {false, true}) {
      const auto logits = c.logits(path, draft);
      const auto most = std::ranges::max_element(logits);
      text += " " + std::to_string(most - logits.begin()) + " " + conformance::text_of(double(*most));
    }
  return text + "\n";
}

TEST(LookedAt, TreesOfRounds) {
  const std::vector<Drawn> kinds{Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement,
                                 Drawn::marginals};
  std::string text;
  for (const bool race : {false, true})
    for (const RoundCase& c : round_cases_of({.takes = kinds, .race = race})) text += text_of(c);
  for (const Drawn d : kinds)
    text += text_of(large_round({d}, 30, int(d) + 1)) + text_of(full_chain(d, 16, int(d) + 1));
  text += text_of(large_round(kinds, 40, 3));
  expect_written("trees", text);
}

}  // namespace
}  // namespace foretoken::test

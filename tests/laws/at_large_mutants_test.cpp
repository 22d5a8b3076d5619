// Planted bugs of drafters and length policies that show in many sequences, long texts, many rounds or beside another
// engine alone, each killed by the scenario of the law `memory` that the test names, as `foretoken check` runs it. The
// same component without the bug holds.
#include <array>
#include <functional>
#include <map>
#include <unordered_map>

#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace at_large {

using nlohmann::json;

// Why the first of these scenarios of the law fails that does; empty if none does.
std::string broken(const Candidate& candidate, const std::string& scenario = "") {
  const auto at = std::ranges::find(kit_laws(), "memory", &KitLaw::name);
  EXPECT_EQ(at->inapplicable(candidate, {}), "");
  int ran = 0;
  for (const LawCase& c : at->cases(candidate, {})) {
    if (c.scenario.find(scenario) == std::string::npos) continue;
    const Finding f = c.run();
    ++ran;
    if (!f.holds) return f.why;
  }
  EXPECT_GT(ran, 0) << scenario;
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

enum class Fault {
  none,
  four_slots,
  sixteen_slots,
  beyond_300_positions,
  after_48_tokens,
  after_40_rounds,
  leaves_ids,
  in_static,
  learns,
  learns_and_keeps
};

// Guesses what followed each token last in the sequence; a drafter that learns, in any sequence where it knows nothing.
class Followers : public Drafter {
 public:
  Followers(Backend& backend, Fault fault) : backend_(backend), fault_(fault) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const Sequence& s = *requests[i].sequence;
      Table& table = table_of(s.id);
      ++table.rounds;
      for (; table.seen < s.tokens.size(); ++table.seen) add(s, table);
      Token last = s.last();
      for (int n = 0; n < requests[i].budget.chain(); ++n) {
        if (table.followers.contains(last))
          last = table.followers.at(last);
        else if (learns() && everyones_.contains(last))
          last = everyones_.at(last);
        else
          break;
        trees[i].guess(n, last);
      }
    }
    return trees;
  }
  void forget(const Sequence& s) override {
    slots_.erase(s.id);
    if (fault_ == Fault::leaves_ids) known_.push_back(s.id);
    if (fault_ != Fault::learns_and_keeps) tables().erase(s.id);
  }

 private:
  struct Table {
    std::size_t seen = 1;
    int rounds = 0;
    std::unordered_map<Token, Token> followers;
  };

  bool learns() const { return fault_ == Fault::learns || fault_ == Fault::learns_and_keeps; }
  std::unordered_map<SequenceId, Table>& tables() {
    static std::unordered_map<SequenceId, Table> everywhere;
    return fault_ == Fault::in_static ? everywhere : tables_;
  }
  Table& table_of(SequenceId id) {
    const std::size_t most = fault_ == Fault::four_slots ? 4 : fault_ == Fault::sixteen_slots ? 16 : 0;
    if (most == 0) return tables()[id];
    const auto [slot, fresh] = slots_.try_emplace(id, slots_.size() % most);
    if (fresh) slotted_[slot->second] = {};
    return slotted_[slot->second];
  }
  void add(const Sequence& s, Table& table) {
    const std::size_t n = table.seen;
    const bool late = (fault_ == Fault::beyond_300_positions && n > 300) ||
                      (fault_ == Fault::after_48_tokens && int(n) - s.prompt_length >= 48 && table.rounds > 1) ||
                      (fault_ == Fault::after_40_rounds && table.rounds > 40);
    if (!late) table.followers[s.tokens[n - 1]] = s.tokens[n];
    // A fresh drafter reads all at once, so it knows no rounds; what begins late must differ from it at once.
    if (fault_ == Fault::beyond_300_positions && late) table.followers[s.tokens[n - 1]] = Token(calls_++ % 2);
    everyones_[s.tokens[n - 1]] = s.tokens[n];
  }

  Backend& backend_;
  Fault fault_;
  int calls_ = 0;
  std::unordered_map<SequenceId, Table> tables_;
  std::array<Table, 16> slotted_;
  std::map<SequenceId, std::size_t> slots_;
  std::vector<SequenceId> known_;
  std::unordered_map<Token, Token> everyones_;
};

Candidate followers(Fault fault) {
  Registries registries = all_registries();
  const bool learns = fault == Fault::learns || fault == Fault::learns_and_keeps;
  registries.drafters.add(
      "followers",
      entry_that<Drafter>(
          [=](const json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}, .learns = learns}; },
          [=](const json&, Host& h) { return std::make_unique<Followers>(h.backend(), fault); }));
  return candidate({registries, {{{"name", "followers"}}, {{"name", "fixed"}, {"length", 4}}, {{"name", "coupled"}}}},
                   false);
}

TEST(AtLarge, DraftersWithoutAFaultHold) {
  for (const Fault fault : {Fault::none, Fault::learns}) EXPECT_EQ(broken(followers(fault)), "");
}

TEST(AtLargeMutants, StateOfFewSlotsPositionsTokensOrRoundsIsKilledByManySequences) {
  for (const Fault fault : {Fault::four_slots, Fault::sixteen_slots, Fault::beyond_300_positions,
                            Fault::after_48_tokens, Fault::after_40_rounds}) {
    const std::string why = broken(followers(fault), "20 sequences, long texts, many rounds");
    EXPECT_TRUE(has(why, " at length ")) << int(fault) << ": " << why;
  }
}

TEST(AtLargeMutants, IdsThatAreLeftInAListAreKilledByThousandsOfSequences) {
  const std::string why = broken(followers(Fault::leaves_ids), "3000 short sequences");
  EXPECT_TRUE(has(why, " bytes are still in use")) << why;
}

TEST(AtLargeMutants, TablesInAStaticVariableAreKilledBesideAnotherEngine) {
  const std::string why = broken(followers(Fault::in_static), "beside another engine");
  EXPECT_TRUE(has(why, "not in static variables")) << why;
}

TEST(AtLargeMutants, ALearnerThatKeepsWhatItWasToldToForgetIsKilledByIds) {
  const std::string why = broken(followers(Fault::learns_and_keeps), "ids that were forgotten");
  EXPECT_TRUE(has(why, "an id that the drafter never met")) << why;
}

enum class PolicyFault { none, four_slots, after_40_rounds, leaves_ids, one_above_at_other_options };

// As many levels as were accepted last, and one.
class OneMore : public LengthPolicy {
 public:
  OneMore(PolicyFault fault, int most) : fault_(fault), most_(most) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (const PastOnly& p : past) {
      const int above = fault_ == PolicyFault::one_above_at_other_options && most_ > 20;
      const int levels = std::min(most_ + above, 1 + of(p.id).accepted);
      all.push_back({levels + 1, levels});
    }
    return all;
  }
  void observe(const StepReport& report) override {
    for (const SequenceReport& r : report.sequences)
      if (++of(r.id).rounds <= 40 || fault_ != PolicyFault::after_40_rounds)
        of(r.id).accepted = r.accepted;
      else
        of(r.id).accepted = std::exchange(last_, r.accepted);
  }
  void forget(const Sequence& s) override {
    known_.erase(s.id);
    if (fault_ == PolicyFault::leaves_ids) left_.push_back(s.id);
  }

 private:
  struct State {
    int rounds = 0, accepted = 0;
  };
  State& of(SequenceId id) {
    if (fault_ != PolicyFault::four_slots) return known_[id];
    const auto [slot, fresh] = slots_.try_emplace(id, slots_.size() % 4);
    return slotted_[slot->second];
  }

  PolicyFault fault_;
  int most_, last_ = 0;
  std::unordered_map<SequenceId, State> known_;
  std::map<SequenceId, std::size_t> slots_;
  std::array<State, 4> slotted_;
  std::vector<SequenceId> left_;
};

std::string broken(PolicyFault fault, const std::string& scenario) {
  Registries registries = all_registries();
  registries.policies.add(
      "one_more",
      {"",
       "",
       {{"most", "integer", 6, "", false, 1, 64}},
       [=](const json& o, Host&) { return std::make_unique<OneMore>(fault, o.at("most").get<int>()); },
       [](const json& o, const ModelInfo&) { return Budget{o.at("most").get<int>() + 1, o.at("most").get<int>()}; }});
  const json drafter{{"name", "draft_model"}, {"model", "table:other"}}, verifier{{"name", "coupled"}};
  return broken(candidate({registries, {drafter, {{"name", "one_more"}}, verifier}}, true), scenario);
}

TEST(AtLarge, APolicyWithoutAFaultHolds) { EXPECT_EQ(broken(PolicyFault::none, ""), ""); }

TEST(AtLargeMutants, PoliciesOfFewSlotsOrRoundsAreKilledByManySequences) {
  for (const PolicyFault fault : {PolicyFault::four_slots, PolicyFault::after_40_rounds}) {
    const std::string why = broken(fault, "24 sequences, 72 rounds");
    EXPECT_TRUE(has(why, "where a policy that saw this sequence alone gives")) << int(fault) << ": " << why;
  }
}

TEST(AtLargeMutants, APolicyThatLeavesIdsIsKilledByThousandsOfSequences) {
  const std::string why = broken(PolicyFault::leaves_ids, "24 sequences, 72 rounds");
  EXPECT_TRUE(has(why, "LengthPolicy::forget must drop all")) << why;
}

TEST(AtLargeMutants, ABudgetAboveTheLargestAtOtherOptionsIsKilledByManySequences) {
  const std::string why = broken(PolicyFault::one_above_at_other_options, "24 sequences, 72 rounds, {\"most\":64}");
  EXPECT_TRUE(has(why, "above the largest that the policy states")) << why;
}

}  // namespace at_large
}  // namespace foretoken::test

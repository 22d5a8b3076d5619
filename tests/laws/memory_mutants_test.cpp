// Planted bugs in what drafters and length policies keep of their sequences, each killed by the scenario of the law
// `memory` that the test names, as `foretoken check` runs it. The same component without the bug holds.
#include <functional>
#include <map>
#include <unordered_map>

#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

// Why the first of these scenarios fails that does; empty if none does.
std::string broken(const Candidate& candidate, const std::string& scenario = "") {
  const auto at = std::ranges::find(kit_laws(), "memory", &KitLaw::name);
  EXPECT_EQ(at->inapplicable(candidate, {}), "");
  int ran = 0;
  for (const LawCase& c : at->cases(candidate, {})) {
    if (c.scenario.find(scenario) == std::string::npos) continue;
    const Finding f = c.run();
    ++ran;
    if (!f.holds) return f.why;
    EXPECT_GT(f.cases, 20) << c.scenario;
  }
  EXPECT_GT(ran, 0) << scenario;
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

enum class Fault { none, keeps_its_position, never_forgets, shares_long_matches };

// Guesses what followed each token last in the sequence.
class Lookup : public Drafter {
 public:
  Lookup(Backend& backend, Fault fault, int longest) : backend_(backend), fault_(fault), longest_(longest) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const Tokens& tokens = requests[i].sequence->tokens;
      auto& followers = followers_[requests[i].sequence->id];
      for (int& n = seen_.emplace(requests[i].sequence->id, 1).first->second; n < int(tokens.size()); ++n) {
        followers[tokens[std::size_t(n) - 1]] = tokens[std::size_t(n)];
        if (n >= longest_) everyones_[end_of(tokens, n)] = tokens[std::size_t(n)];
      }
      Tokens text = tokens;
      for (int n = 0; n < requests[i].budget.chain(); ++n) {
        if (fault_ == Fault::shares_long_matches && everyones_.contains(end_of(text, int(text.size()))))
          text.push_back(everyones_.at(end_of(text, int(text.size()))));
        else if (followers.contains(text.back()))
          text.push_back(followers.at(text.back()));
        else
          break;
        trees[i].guess(n, text.back());
      }
    }
    return trees;
  }
  void forget(const Sequence& sequence) override {
    if (fault_ == Fault::never_forgets) return;
    followers_.erase(sequence.id);
    if (fault_ != Fault::keeps_its_position) seen_.erase(sequence.id);
  }

 private:
  Tokens end_of(const Tokens& tokens, int n) const {
    return {tokens.begin() + std::max(0, n - longest_), tokens.begin() + n};
  }

  Backend& backend_;
  Fault fault_;
  int longest_;
  std::unordered_map<SequenceId, std::unordered_map<Token, Token>> followers_;
  std::unordered_map<SequenceId, int> seen_;
  std::map<Tokens, Token> everyones_;  // what followed so many tokens in any sequence
};

Candidate lookup(Fault fault, int longest = 12) {
  Registries registries = all_registries();
  registries.drafters.add("lookup",
                          entry_that<Drafter>(states(Needs{.proposes = {Drawn::certain}}), [=](const json&, Host& h) {
                            return std::make_unique<Lookup>(h.backend(), fault, longest);
                          }));
  return candidate({registries, {{{"name", "lookup"}}, {{"name", "fixed"}, {"length", 4}}, {{"name", "coupled"}}}},
                   false);
}

TEST(MemoryMutants, ADrafterWithoutAFaultHolds) { EXPECT_EQ(broken(lookup(Fault::none)), ""); }

TEST(MemoryMutants, ForgettingATableButNotThePositionIsKilledByPreemptionAndByForgetting) {
  for (const char* scenario : {"preempted in a small pool", "forgotten now and then"}) {
    const std::string why = broken(lookup(Fault::keeps_its_position), scenario);
    EXPECT_TRUE(has(why, "sequence ") && has(why, " at length ")) << scenario << ": " << why;
  }
}

TEST(MemoryMutants, NotForgettingAnythingIsKilledByIdsThatComeAgain) {
  for (const char* scenario : {"10 requests", "preempted in a small pool", "long prompts that share passages"}) {
    const std::string why = broken(lookup(Fault::never_forgets), scenario);
    EXPECT_TRUE(has(why, "Drafter::forget must drop all that is kept of the sequence")) << scenario << ": " << why;
  }
}

TEST(MemoryMutants, LongMatchesInOtherRequestsAreKilledByLongPromptsThatSharePassages) {
  for (const int longest : {12, 16, 32, 48, 64}) {
    const std::string why = broken(lookup(Fault::shares_long_matches, longest), "long prompts that share passages");
    EXPECT_TRUE(has(why, " at length ")) << longest << ": " << why;
  }
}

enum class ReaderFault { none, whole_or_nothing, options_of_the_first, seed_of_the_first };

// draft_model, whose model with a fault reads a prompt whole or not at all, however many rows it gets for a part, or
// draws for all requests with the sampling options of the first, or with its seed alone.
class Reader : public Drafter {
 public:
  Reader(std::unique_ptr<Drafter> inner, ReaderFault fault) : inner_(std::move(inner)), fault_(fault) {}
  void forget(const Sequence& sequence) override { inner_->forget(sequence), read_.erase(sequence.id); }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftRequest> all(requests.begin(), requests.end());
    std::vector<Sequence> changed;
    changed.reserve(all.size());
    for (DraftRequest& r : all) {
      int& read = read_[r.sequence->id];
      const bool whole = r.sequence->length() - read <= r.rows;
      if (fault_ == ReaderFault::whole_or_nothing && !whole) r.rows = 0, r.budget = {};
      if (r.rows > 0) read = r.sequence->length();
      if (fault_ == ReaderFault::seed_of_the_first) r.draws.seed = requests[0].draws.seed;
      if (fault_ != ReaderFault::options_of_the_first) continue;
      changed.push_back(*r.sequence);
      changed.back().sampling = requests[0].sequence->sampling;
      r.sequence = &changed.back();
    }
    return inner_->draft(all);
  }

 private:
  std::unique_ptr<Drafter> inner_;
  ReaderFault fault_;
  std::unordered_map<SequenceId, int> read_;
};

Candidate reader(ReaderFault fault) {
  Registries registries = all_registries();
  Entry<Drafter> entry = registries.drafters.entries().at("draft_model");
  entry.make = [make = entry.make, fault](const json& o, Host& host) {
    return std::make_unique<Reader>(make(o, host), fault);
  };
  registries.drafters.add("reader", entry);
  return candidate({registries,
                    {{{"name", "reader"}, {"model", "table:other"}},
                     {{"name", "fixed"}, {"length", 4}},
                     {{"name", "speculative_sampling"}}}},
                   false);
}

TEST(MemoryMutants, AModelThatReadsPromptsWholeOrNotAtAllIsKilledByPromptsReadInParts) {
  EXPECT_EQ(broken(reader(ReaderFault::none)), "");
  const std::string why = broken(reader(ReaderFault::whole_or_nothing), "prompts read in parts");
  EXPECT_TRUE(has(why, "1 nodes instead of")) << why;
}

TEST(MemoryMutants, SamplingOptionsOfAnotherRequestAreKilledByUnlikeRequests) {
  for (const char* scenario : {"10 requests", "preempted in a small pool"})
    EXPECT_EQ(broken(reader(ReaderFault::options_of_the_first), scenario), "") << scenario << ": all are alike";
  for (const ReaderFault fault : {ReaderFault::options_of_the_first, ReaderFault::seed_of_the_first})
    EXPECT_TRUE(has(broken(reader(fault), "unlike requests"), " at length ")) << int(fault);
}

enum class PolicyFault { none, by_slot, never_forgets, forgets_half, of_all, of_all_declared, above_the_largest };

// One more level after a draft that was accepted whole, one less after another.
class Steps : public LengthPolicy {
 public:
  explicit Steps(PolicyFault fault) : fault_(fault) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (std::size_t i = 0; i < past.size(); ++i) {
      const bool shared = fault_ == PolicyFault::of_all || fault_ == PolicyFault::of_all_declared;
      int& length = lengths_.emplace(shared ? 0 : fault_ == PolicyFault::by_slot ? i : past[i].id, 3).first->second;
      if (past[i].drafted > 0) {
        const bool whole = past[i].accepted == past[i].drafted;
        int& streak = streaks_[past[i].id];  // drafts in a row that were accepted whole; the third one counts twice
        streak = whole ? streak + 1 : 0;
        length = std::clamp(whole ? length + 1 + (streak == 3) : length - 1, 1, 8);
      }
      if (fault_ == PolicyFault::above_the_largest && past[i].rounds > 2) length = 9;
      all.push_back({.nodes = length + 1, .depth = length});
    }
    return all;
  }
  void forget(const Sequence& sequence) override {
    if (fault_ == PolicyFault::never_forgets) return;
    lengths_.erase(sequence.id);
    if (fault_ != PolicyFault::forgets_half) streaks_.erase(sequence.id);
  }

 private:
  PolicyFault fault_;
  std::unordered_map<std::uint64_t, int> lengths_;
  std::unordered_map<SequenceId, int> streaks_;
};

Candidate steps(PolicyFault fault) {
  Registries registries = all_registries();
  registries.policies.add(
      "steps",
      entry_that<LengthPolicy>(states(PolicyTraits({.nodes = 9, .depth = 8}, fault == PolicyFault::of_all_declared)),
                               [=](const json&, Host&) { return std::make_unique<Steps>(fault); }));
  return candidate(
      {registries, {{{"name", "draft_model"}, {"model", "table:other"}}, {{"name", "steps"}}, {{"name", "coupled"}}}},
      true);
}
const std::string kOfPolicies = "budgets of the policy, preempted in a small pool";

TEST(MemoryMutants, APolicyWithoutAFaultHolds) { EXPECT_EQ(broken(steps(PolicyFault::none)), ""); }

TEST(MemoryMutants, LengthsByPlaceInTheBatchAreKilledByMemoryOfPolicies) {
  const std::string why = broken(steps(PolicyFault::by_slot), kOfPolicies);
  EXPECT_TRUE(has(why, "where a policy that saw this sequence alone gives")) << why;
}

TEST(MemoryMutants, LengthsThatAreNotForgottenAreKilledByMemoryOfPolicies) {
  const std::string why = broken(steps(PolicyFault::never_forgets), kOfPolicies);
  EXPECT_TRUE(has(why, "has ended and was forgotten")) << why;
}

TEST(MemoryMutants, ARunOfAcceptedDraftsThatIsNotForgottenIsKilledByMemoryOfPolicies) {
  const std::string why = broken(steps(PolicyFault::forgets_half), kOfPolicies);
  EXPECT_TRUE(has(why, "has ended and was forgotten, and a new one of this id, in its round ")) << why;
}

TEST(MemoryMutants, OneLengthForAllIsKilledByMemoryOfPoliciesUnlessItIsDeclared) {
  EXPECT_TRUE(has(broken(steps(PolicyFault::of_all), kOfPolicies), "or state PolicyTraits::learns"));
  const Candidate declared = steps(PolicyFault::of_all_declared);
  for (const LawCase& c : std::ranges::find(kit_laws(), "memory", &KitLaw::name)->cases(declared, {}))
    EXPECT_FALSE(has(c.scenario, kOfPolicies));
}

TEST(MemoryMutants, BudgetsAboveTheLargestAreRefused) {
  try {
    ADD_FAILURE() << broken(steps(PolicyFault::above_the_largest), kOfPolicies);
  } catch (const std::exception& e) {
    EXPECT_TRUE(has(e.what(),
                    "the policy 'steps' gave a budget of 10 nodes and 9 levels, above the largest that it "
                    "states, of 9 nodes and 8 levels"))
        << e.what();
  }
}

}  // namespace
}  // namespace foretoken::test

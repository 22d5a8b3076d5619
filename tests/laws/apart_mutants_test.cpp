// Planted bugs of drafters and length policies that take two sequences for one, or forget one too late, each killed by
// the law `memory` as `foretoken check` runs it. The same component without the bug holds.
#include <functional>
#include <map>
#include <set>
#include <unordered_map>

#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

// Why the first of these scenarios of the law fails that does; empty if none does.
std::string broken(const Candidate& candidate, const std::string& scenario = "") {
  for (const LawCase& c : std::ranges::find(kit_laws(), "memory", &KitLaw::name)->cases(candidate, {}))
    if (c.scenario.find(scenario) != std::string::npos)
      if (const Finding f = c.run(); !f.holds) return f.why;
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

enum class ApartFault {
  none,
  by_stream,
  by_first_tokens,
  by_id_modulo,
  by_half_an_id,
  forgets_late,
  keeps_stopped,
  keeps_cancelled,
  forgets_by_half_an_id,
  by_address,
  shorter_in_company  // drafts one token while it knows another sequence of the stream
};

// Guesses what followed each token last in the sequence.
class Followers : public Drafter {
 public:
  Followers(Backend& backend, ApartFault fault) : backend_(backend), fault_(fault) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    ++calls_;
    std::erase_if(leaving_, [&](const auto& l) { return l.second <= calls_ && tables_.erase(l.first) + 1; });
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const Tokens& tokens = requests[i].sequence->tokens;
      Table& table = tables_[key(*requests[i].sequence)];
      for (; table.seen < tokens.size(); ++table.seen) table.followers[tokens[table.seen - 1]] = tokens[table.seen];
      Token last = tokens.back();
      streams_[requests[i].sequence->stream].insert(requests[i].sequence->id);
      const bool shorter =
          fault_ == ApartFault::shorter_in_company && streams_.at(requests[i].sequence->stream).size() > 1;
      for (int n = 0; n < (shorter ? 1 : requests[i].budget.chain()) && table.followers.contains(last); ++n)
        trees[i].guess(n, last = table.followers.at(last));
    }
    return trees;
  }
  void forget(const Sequence& s) override {
    streams_[s.stream].erase(s.id);
    const bool keeps = (fault_ == ApartFault::keeps_stopped && s.finish == Finish::stop_token) ||
                       (fault_ == ApartFault::keeps_cancelled && s.finish == Finish::cancelled);
    if (fault_ == ApartFault::forgets_late)
      leaving_.emplace_back(key(s), calls_ + 3);
    else if (!keeps)
      tables_.erase(fault_ == ApartFault::forgets_by_half_an_id ? std::uint32_t(s.id) : key(s));
  }

 private:
  struct Table {
    std::size_t seen = 1;
    std::unordered_map<Token, Token> followers;
  };

  std::uint64_t key(const Sequence& s) const {
    std::uint64_t beginning = s.prompt_length < 8 ? s.id : 0;
    for (int n = 0; n < 8 && s.prompt_length >= 8; ++n)
      beginning = beginning * 31 + std::uint64_t(s.tokens[std::size_t(n)]) + 1000;
    switch (fault_) {
      case ApartFault::by_stream:
        return s.stream;
      case ApartFault::by_first_tokens:
        return beginning;
      case ApartFault::by_id_modulo:
        return s.id % 1000;
      case ApartFault::by_half_an_id:
        return std::uint32_t(s.id);
      case ApartFault::by_address:
        return reinterpret_cast<std::uintptr_t>(&s);
      default:
        return s.id;
    }
  }

  Backend& backend_;
  ApartFault fault_;
  int calls_ = 0;
  std::vector<std::pair<std::uint64_t, int>> leaving_;  // and the call that drops it
  std::unordered_map<std::uint64_t, Table> tables_;
  std::map<std::uint64_t, std::set<SequenceId>> streams_;  // the sequences of each that it knows
};

std::string broken(ApartFault fault, const std::string& scenario = "") {
  Registries registries = all_registries();
  const auto make = [=](const json&, Host& h) { return std::make_unique<Followers>(h.backend(), fault); };
  const auto needs = [](const json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}}; };
  registries.drafters.add("followers", {"", "", {}, make, needs});
  const json policy{{"name", "fixed"}, {"length", 4}}, verifier{{"name", "coupled"}};
  return broken(candidate({registries, {{{"name", "followers"}}, policy, verifier}}, false), scenario);
}

TEST(ApartMutants, ADrafterWithoutAFaultHolds) { EXPECT_EQ(broken(ApartFault::none), ""); }

TEST(ApartMutants, TablesThatTwoSequencesShareAreKilledByOneBesideAnother) {
  for (const ApartFault fault :
       {ApartFault::by_stream, ApartFault::by_first_tokens, ApartFault::by_id_modulo, ApartFault::by_half_an_id}) {
    const std::string why = broken(fault);
    EXPECT_TRUE(has(why, " of the same stream and the same first tokens")) << int(fault) << ": " << why;
  }
}

TEST(ApartMutants, ForgettingThreeCallsLaterIsKilledByIdsThatComeAgain) {
  EXPECT_TRUE(has(broken(ApartFault::forgets_late), "Drafter::forget must drop all"))
      << broken(ApartFault::forgets_late);
}

TEST(ApartMutants, KeepingWhatAStopTokenEndedIsKilledByIdsThatComeAgain) {
  EXPECT_TRUE(has(broken(ApartFault::keeps_stopped), "Drafter::forget must drop all"))
      << broken(ApartFault::keeps_stopped);
}

TEST(ApartMutants, KeepingWhatWasCancelledIsKilledByIdsThatComeAgainInARunOfThreeSequences) {
  const std::string why = broken(ApartFault::keeps_cancelled, "prompts read in parts");
  EXPECT_TRUE(has(why, "Drafter::forget must drop all")) << why;
}

TEST(ApartMutants, ForgettingByHalfAnIdIsKilledByIdsThatAreFarApart) {
  const std::string why = broken(ApartFault::forgets_by_half_an_id);
  EXPECT_TRUE(has(why, "Drafter::forget must drop all")) << why;
}

TEST(ApartMutants, TablesByTheAddressOfASequenceAreKilledByIdsThatComeAgain) {
  const std::string why = broken(ApartFault::by_address);
  EXPECT_TRUE(has(why, "Drafter::forget must drop all")) << why;
}

// It has no model, so pages are no reason to draft less.
TEST(ApartMutants, ShorterTreesBesideAnotherAreKilledInASmallPoolToo) {
  const std::string why = broken(ApartFault::shorter_in_company, "preempted in a small pool");
  EXPECT_TRUE(has(why, " of the same stream and the same first tokens")) << why;
}

enum class PolicyFault { none, by_id_modulo, keeps_stopped, reads_pages, reads_times };

// As many levels as were accepted last, and one.
class OneMore : public LengthPolicy {
 public:
  explicit OneMore(PolicyFault fault) : fault_(fault) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (const PastOnly& p : past) {
      const bool crowded = fault_ == PolicyFault::reads_pages && pages_ > 20;
      const bool slow = fault_ == PolicyFault::reads_times && seconds_ > 0;
      const int levels = crowded || slow ? 1 : std::min(5, 2 + accepted_[key(p.id)]);
      all.push_back({levels + 1, levels});
    }
    return all;
  }
  void observe(const StepReport& report) override {
    pages_ = report.pages_in_use, seconds_ = report.phases.total;
    for (const SequenceReport& r : report.sequences)
      if (r.tested() > 0) accepted_[key(r.id)] = r.accepted;
  }
  void forget(const Sequence& s) override {
    if (fault_ != PolicyFault::keeps_stopped || s.finish != Finish::stop_token) accepted_.erase(key(s.id));
  }

 private:
  SequenceId key(SequenceId id) const { return fault_ == PolicyFault::by_id_modulo ? id % 64 : id; }

  PolicyFault fault_;
  int pages_ = 0;
  double seconds_ = 0;
  std::unordered_map<SequenceId, int> accepted_;
};

std::string broken(PolicyFault fault) {
  Registries registries = all_registries();
  registries.policies.add("one_more", entry_that<LengthPolicy>(states(Budget{6, 5}), [=](const json&, Host&) {
                            return std::make_unique<OneMore>(fault);
                          }));
  const json drafter{{"name", "draft_model"}, {"model", "table:other"}}, verifier{{"name", "coupled"}};
  return broken(candidate({registries, {drafter, {{"name", "one_more"}}, verifier}}, true));
}

TEST(ApartMutants, APolicyWithoutAFaultHolds) { EXPECT_EQ(broken(PolicyFault::none), ""); }

TEST(ApartMutants, OutcomesThatTwoSequencesShareAreKilledByOneBesideAnother) {
  EXPECT_TRUE(has(broken(PolicyFault::by_id_modulo), ", beside sequence ")) << broken(PolicyFault::by_id_modulo);
}

TEST(ApartMutants, OutcomesOfWhatAStopTokenEndedAreKilledByIdsThatComeAgain) {
  const std::string why = broken(PolicyFault::keeps_stopped);
  EXPECT_TRUE(has(why, " has ended and was forgotten, and a new one of this id, in its round ")) << why;
}

TEST(ApartMutants, BudgetsByWhatOthersTakeAreKilledByMemoryOfPolicies) {
  for (const PolicyFault fault : {PolicyFault::reads_pages, PolicyFault::reads_times}) {
    const std::string why = broken(fault);
    EXPECT_TRUE(has(why, "where a policy that saw this sequence alone gives")) << int(fault) << ": " << why;
  }
}

}  // namespace
}  // namespace foretoken::test

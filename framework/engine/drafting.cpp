// The part of a step that asks the policy how much to draft, and the drafter for trees.
#include <algorithm>

#include "framework/engine/failures.h"
#include "framework/engine/engine.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// What a policy gave, cut to what the plan has room for; a bare root where that is nothing, and nothing at all where
// the root is not fed.
Budget granted(const Budget& wanted, const Budget& room) {
  if (room.nodes == 0) return {};
  return Budget{std::min(wanted.nodes, room.nodes), std::min(wanted.depth, room.depth), wanted.confidence}.or_root();
}

// Whether a tree would have been larger, had the plan had more rows or pages for it.
bool cut(const DraftTree& tree, const Budget& wanted, const Budget& room) {
  return wanted.drafts() && room.depth > 0 && room.nodes > 0 && room.nodes < wanted.nodes && tree.nodes == room.nodes;
}

}  // namespace

// Asks a component about what `questions` makes of the plan. For whom it throws alone fails and leaves the plan; the
// others are asked about again, together.
template <class Questions, class Ask>
auto Engine::ask(Plan& plan, const std::string& who, StepReport& report, const Questions& questions, const Ask& ask) {
  const auto all = questions(plan);
  const std::span every(all);
  try {
    return ask(every);
  } catch (...) {
    const Failures failures =
        failures_alone(int(all.size()), who, [&](int i) { (void)ask(every.subspan(std::size_t(i), 1)); });
    for (std::size_t i = 0; i < failures.size(); ++i) {
      if (failures[i].empty()) continue;
      plan.scheduled[i].active->sequence.fail(failures[i]);
    }
    drop_failed(plan, report);
  }
  const auto rest = questions(plan);
  return ask(std::span(rest));
}

void Engine::choose_budgets(Plan& plan, StepReport& report) {
  const auto past = [](const Plan& p) {
    std::vector<PastOnly> all;
    all.reserve(p.scheduled.size());
    for (const Scheduled& s : p.scheduled) {
      const Active& a = *s.active;
      all.push_back({a.sequence.id, a.sequence.length(), int(p.scheduled.size()), a.rounds, a.drafted, a.accepted,
                     a.tested_in_all ? double(a.accepted_in_all) / double(a.tested_in_all) : -1, s.room});
    }
    return all;
  };
  const std::vector<Budget> budgets = ask(plan, policy_name_, report, past, [&](std::span<const PastOnly> all) {
    return all.empty() ? std::vector<Budget>() : policy_->budgets(all);
  });
  if (budgets.size() != plan.scheduled.size())
    throw Error(policy_name_ + " gave " + std::to_string(budgets.size()) + " budgets for " +
                std::to_string(plan.scheduled.size()) + " sequences; LengthPolicy::budgets owes one for each");
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    Budget b = budgets[i];
    expect_confidence(configs_, b, needs_);
    b.nodes = std::min(b.nodes, most_.nodes), b.depth = std::min(b.depth, most_.depth);
    Scheduled& s = plan.scheduled[i];
    s.wanted = b, s.budget = granted(b, s.room);
  }
}

std::vector<DraftRequest> Engine::requests(const Plan& plan) {
  // With nothing to draft the drafter is skipped; it catches up when it is next asked. All that drafters' models catch
  // up with in one step has to do with as many rows as a step may have.
  std::vector<int> wanted;
  for (const Scheduled& s : plan.scheduled)
    wanted.push_back(!s.root ? s.chain : s.budget.drafts() ? draft_lacks(s.active->sequence) : 0);
  const std::vector<int> rows = shares(wanted, options_.step_rows);
  std::vector<DraftRequest> requests;
  requests.reserve(plan.scheduled.size());
  for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
    const Scheduled& s = plan.scheduled[i];
    const Sequence& q = s.active->sequence;
    requests.push_back(
        {&q, s.budget, rows[i], {q.sampling.seed, q.stream, std::uint32_t(q.length()), 0}, soundness_.race});
  }
  return requests;
}

// How many tokens drafters' models may have to read before they can draft: those that no cache of theirs holds.
int Engine::draft_lacks(const Sequence& sequence) {
  int lacks = host_.caches().empty() ? sequence.length() : 1;
  for (const auto& c : host_.caches()) lacks = std::max(lacks, c->lacks(sequence));
  return lacks;
}

std::vector<DraftTree> Engine::draft(Plan& plan, StepReport& report) {
  choose_budgets(plan, report);
  std::vector<DraftTree> trees = ask(
      plan, drafter_name_, report, [this](const Plan& p) { return requests(p); },
      [this](std::span<const DraftRequest> all) {
        return all.empty() ? std::vector<DraftTree>() : drafter_->draft(all);
      });
  if (trees.size() != plan.scheduled.size())
    throw Error(drafter_name_ + " returned " + std::to_string(trees.size()) + " trees for " +
                std::to_string(plan.scheduled.size()) + " requests; Drafter::draft owes one tree for each");
  std::vector<DraftTree> fine;
  fine.reserve(trees.size());
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const Scheduled& s = plan.scheduled[i];
    Sequence& q = s.active->sequence;
    const int vocab = target_.info().vocab;
    try {
      expect_tree(trees[i], {q.last(), s.budget, vocab, soundness_.takes, needs_.proposes}, drafter_name_);
      expect_distributions(trees[i], vocab);
    } catch (const Error& e) {
      q.fail(e.what());
      continue;
    }
    report.cut += cut(trees[i], s.wanted, s.room);
    fine.push_back(std::move(trees[i]));
  }
  drop_failed(plan, report);
  return fine;
}

}  // namespace foretoken

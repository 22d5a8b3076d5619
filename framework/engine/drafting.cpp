// The drafting part of a step: the policy's budgets, then the drafter's trees.
#include <algorithm>

#include "framework/engine/engine.h"
#include "framework/engine/failures.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// The policy's budget, cut to the plan's; that of a bare root where it allows no node below the root; {} where the root
// is not fed.
Budget granted(const Budget& wanted, const Budget& room) {
  if (room.nodes == 0) return {};
  return Budget{std::min(wanted.nodes, room.nodes), std::min(wanted.depth, room.depth), wanted.confidence}.or_root();
}

// What is wrong with a budget that exceeds the policy's largest, or ends drafts though that does not; else empty.
std::string above(const Budget& b, const Budget& most) {
  if (b.confidence != 0 && most.confidence == 0)
    return " gave a budget that sets Budget::confidence, unlike the largest that it states; let Entry::traits set it";
  if (b.nodes <= most.nodes && b.depth <= most.depth) return "";
  const auto text = [](const Budget& x) {
    return std::to_string(x.nodes) + " nodes and " + std::to_string(x.depth) + " levels";
  };
  return " gave a budget of " + text(b) + ", above the largest that it states, of " + text(most) +
         "; let Entry::traits state the largest";
}

// Whether a tree was limited by the rows or pages of the plan: see StepReport::cut.
bool cut(const DraftTree& tree, const Budget& wanted, const Budget& room) {
  return wanted.drafts() && room.depth > 0 && room.nodes > 0 && room.nodes < wanted.nodes && tree.nodes == room.nodes;
}

// Whether the verifier has a node to judge.
bool proposes(const DraftTree& tree) {
  int n = 1;
  while (n < tree.nodes && tree.aside(n)) ++n;
  return n < tree.nodes;
}

// Why a budget allows no node below the root.
NoDraft budget_reason(const Scheduled& s) {
  if (!s.wanted.drafts()) return NoDraft::policy;
  if (s.room.depth == 0) return NoDraft::end;
  return s.short_of_pages ? NoDraft::pages : NoDraft::rows;
}

}  // namespace

// Calls a component with the inputs that `inputs_of` makes of the plan. If it throws, the sequences for which it throws
// alone fail and leave the plan, and it is called again with the others together: see failures.h.
template <class InputsOf, class Call> auto Engine::call_component(Plan& plan, const std::string& who,
                                                                  StepReport& report, const InputsOf& inputs_of,
                                                                  const Call& call) {
  const auto inputs = inputs_of(plan);
  const std::span all(inputs);
  try {
    return call(all);
  } catch (...) {
    const Failures failures =
        failures_alone(int(all.size()), who, [&](int i) { (void)call(all.subspan(std::size_t(i), 1)); });
    for (std::size_t i = 0; i < failures.size(); ++i) {
      if (failures[i].empty()) continue;
      plan.scheduled[i].active->sequence.fail(failures[i]);
    }
    drop_failed(plan, report);
  }
  const auto rest = inputs_of(plan);
  return call(std::span(rest));
}

void Engine::choose_budgets(Plan& plan, StepReport& report) {
  const auto past = [](const Plan& p) {
    std::vector<PastOnly> all;
    all.reserve(p.scheduled.size());
    for (const Scheduled& s : p.scheduled) {
      const Active& a = *s.active;
      all.push_back({a.sequence.id, a.sequence.length(), int(p.scheduled.size()), a.rounds, a.drafted, a.accepted,
                     a.tested_in_all ? double(a.accepted_in_all) / double(a.tested_in_all) : -1, s.room,
                     a.sequence.category});
    }
    return all;
  };
  const std::vector<Budget> budgets = call_component(
      plan, policy_name_, report, past,
      [&](std::span<const PastOnly> all) { return all.empty() ? std::vector<Budget>() : policy_->budgets(all); });
  if (budgets.size() != plan.scheduled.size())
    throw Error(policy_name_ + " gave " + std::to_string(budgets.size()) + " budgets for " +
                std::to_string(plan.scheduled.size()) + " sequences; LengthPolicy::budgets must return one for each");
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    Budget b = budgets[i];
    expect_confidence(configs_, b, traits_.needs);
    Scheduled& s = plan.scheduled[i];
    Sequence& q = s.active->sequence;
    if (const std::string why = above(b, traits_.policy.most); !why.empty())
      q.fail(for_sequence(q.id, policy_name_ + why));
    b.nodes = std::min(b.nodes, most_.nodes), b.depth = std::min(b.depth, most_.depth);
    s.wanted = b, s.budget = granted(b, s.room);
  }
  drop_failed(plan, report);
}

std::vector<DraftRequest> Engine::requests(Plan& plan) {
  // A sequence whose budget allows no draft gets no rows: the drafter's model reads its missing tokens before its next
  // draft. The rows for missing tokens of all sequences are together at most `step_rows`.
  std::vector<int> wanted;
  for (const Scheduled& s : plan.scheduled)
    wanted.push_back(!s.root ? s.chain : s.budget.drafts() ? draft_unseen(s.active->sequence) : 0);
  const std::vector<int> rows = shares(wanted, options_.step_rows);
  std::vector<DraftRequest> requests;
  requests.reserve(plan.scheduled.size());
  for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
    Scheduled& s = plan.scheduled[i];
    s.catches_up = rows[i] < wanted[i];
    const Sequence& q = s.active->sequence;
    requests.push_back({&q,
                        s.budget,
                        rows[i],
                        {q.sampling.seed, q.stream, std::uint32_t(q.length()), 0},
                        soundness().race,
                        target_.hidden(q)});
  }
  return requests;
}

// The most tokens of the sequence that a cache of a drafter's model lacks; all of them where there is no such cache.
int Engine::draft_unseen(const Sequence& sequence) {
  int most = host_.caches().empty() ? sequence.length() : 1;
  for (const auto& c : host_.caches()) most = std::max(most, c->most_unseen(sequence));
  return most;
}

// Why the drafter returned a bare root. Whoever it is, the caches of its models show what they lacked.
NoDraft Engine::no_draft(const Scheduled& s) {
  if (!s.budget.drafts()) return budget_reason(s);
  const Sequence& q = s.active->sequence;
  const auto& caches = host_.caches();
  if (std::ranges::any_of(caches, [&](const auto& c) { return !c->fits(q); })) return NoDraft::context;
  if ((!needs().hidden.empty() || needs().views_target) && (q.generated() == 0 || s.chain > 0)) return NoDraft::states;
  if (s.catches_up && !caches.empty()) return NoDraft::rows;
  return std::ranges::any_of(caches, [&](const auto& c) { return c->lacked_pages(q); }) ? NoDraft::pages
                                                                                        : NoDraft::nothing;
}

std::vector<DraftTree> Engine::draft(Plan& plan, StepReport& report) {
  choose_budgets(plan, report);
  if (!target_.taps().empty()) target_.cache().compact();  // drafters read states where their positions are
  std::vector<DraftTree> trees = call_component(
      plan, drafter_name_, report, [this](Plan& p) { return requests(p); },
      [this](std::span<const DraftRequest> all) {
        return all.empty() ? std::vector<DraftTree>() : drafter_->draft(all);
      });
  if (trees.size() != plan.scheduled.size())
    throw Error(drafter_name_ + " returned " + std::to_string(trees.size()) + " trees for " +
                std::to_string(plan.scheduled.size()) + " requests; Drafter::draft must return one tree for each");
  std::vector<DraftTree> fine;
  fine.reserve(trees.size());
  for (std::size_t i = 0; i < trees.size(); ++i) {
    Scheduled& s = plan.scheduled[i];
    Sequence& q = s.active->sequence;
    const int vocab = target_.info().vocab;
    try {
      expect_tree(trees[i], {q.last(), s.budget, vocab, soundness().takes, needs().proposes}, drafter_name_);
      expect_distributions(trees[i], vocab, drafter_name_);
    } catch (const Error& e) {
      q.fail(for_sequence(q.id, e.what()));
      continue;
    }
    report.cut += cut(trees[i], s.wanted, s.room);
    if (s.root && !proposes(trees[i])) s.no_draft = no_draft(s);
    fine.push_back(std::move(trees[i]));
  }
  drop_failed(plan, report);
  return fine;
}

double Engine::draft_seconds() {
  double s = 0;
  for (const auto& books : host_.books()) s += books->seconds();
  return s;
}

}  // namespace foretoken

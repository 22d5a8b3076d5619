// One request of a trace under a length policy.
#include <algorithm>

#include "experiments/trace/replay.h"
#include "framework/engine/tree_report.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace foretoken {
namespace {

// How many tokens a round accepts: the draw of request and walk `number` at this position.
int accepted_of(const std::vector<double>& reach, std::uint64_t number, std::size_t at) {
  const double u = Draws{.seed = 1, .stream = number, .root = std::uint32_t(at)}.uniform({Role::accept, 0, 0});
  int accepted = 0;
  while (accepted < int(reach.size()) && u < reach[std::size_t(accepted)]) ++accepted;
  return accepted;
}

// As an engine reports it. `path`: the accepted nodes, by their numbers in the recorded tree; `kept`: see
// report_tree.
SequenceReport report_of(const TracedRound& round, const CutTree& tree, const std::vector<int>& path, int kept) {
  std::vector<std::int32_t> number(std::size_t(round.size()), 0), parents{0}, accepted;  // in the cut tree
  std::vector<Token> tokens{0};
  for (const int n : tree.nodes) {
    number[std::size_t(n)] = std::int32_t(tokens.size());
    parents.push_back(number[std::size_t(round.node(n).parent)]), tokens.push_back(round.node(n).token);
  }
  for (const int n : path) accepted.push_back(number[std::size_t(n)]);
  SequenceReport s;
  std::vector<int> depth;
  report_tree(s, parents, tokens, accepted, kept, depth);
  s.judged = true;
  return s;
}

// The largest tree that an engine allows after so many tokens: the last token of an output is never fed.
Budget room_of(const Budget& most, int remaining) {
  const int depth = std::clamp(remaining - 1, 0, most.depth);
  return {depth > 0 ? most.nodes : 1, depth};
}

// What an engine makes of the policy's budget.
Budget granted(const std::vector<Budget>& budgets, const Budget& room) {
  if (budgets.size() != 1) throw Error("the policy gave " + std::to_string(budgets.size()) + " budgets for 1 sequence");
  if (budgets[0].confidence > 0)
    throw Error("the policy ends drafts by the draft's confidence, which a trace does not hold; replay another");
  return Budget{std::min(budgets[0].nodes, room.nodes), std::min(budgets[0].depth, room.depth)}.or_root();
}

}  // namespace

Replay::Sums Replay::follow(TracedOutput output, LengthPolicy& policy, const Budget& stated, const Rule& rule,
                            std::uint64_t number, bool timed) const {
  const int request = output[0]->request, prompt = trace_.requests[std::size_t(request)].prompt_tokens;
  const Budget most = Budget{std::min(stated.nodes, kMaxNodes), std::min(stated.depth, kMaxPath)}.or_root();
  PastOnly past;
  past.id = number, past.batch = trace_.batch();
  past.category = trace_.requests[std::size_t(request)].category;
  int tested = 0, passed = 0;
  Sums sums;
  for (std::size_t t = 0; t < output.size();) {
    past.length = prompt + int(t), past.room = room_of(most, trace_.most_tokens(request) - int(t));
    const Budget budget = granted(policy.budgets({&past, 1}), past.room);
    const CutTree tree = cut_of(*output[t], {budget.depth, budget.nodes});
    const int accepted = accepted_of(rule.reach.reach(output, t, tree, rule.basis), number, t);
    StepReport report;
    report.rows = tree.rows(), report.running = 1;
    const int kept = int(std::min(output.size() - t, std::size_t(accepted) + 1));
    SequenceReport s = report_of(*output[t], tree, rule.reach.path(output, t, tree, accepted), kept);
    s.id = number;
    for (int i = 0; i < kept; ++i) s.emitted.push_back(output[t + std::size_t(i)]->emitted.front());
    ++past.rounds, past.drafted = s.drafted, past.accepted = s.accepted;
    tested += s.tested(), passed += s.accepted;
    past.acceptance = tested > 0 ? double(passed) / tested : -1;
    report.sequences.push_back(std::move(s));
    ++sums.rounds;
    if (timed) sums.seconds += report.phases.total = costs_.round(tree.rows(), tree.depth);
    policy.observe(report);
    t += std::size_t(accepted) + 1;
  }
  Sequence ended;
  ended.id = number;
  policy.forget(ended);
  return sums;
}

}  // namespace foretoken

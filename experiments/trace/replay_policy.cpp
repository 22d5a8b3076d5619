// One request of a trace under a length policy.
#include <algorithm>

#include "experiments/trace/replay.h"
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

StepReport report_of(SequenceId id, const CutTree& tree, int accepted, TracedOutput output, std::size_t t) {
  SequenceReport s;
  s.id = id, s.judged = true, s.drafted = int(tree.nodes.size()), s.depth = tree.depth, s.accepted = accepted;
  s.rejected = accepted < tree.depth;
  for (std::size_t i = t; i < output.size() && i <= t + std::size_t(accepted); ++i)
    s.emitted.push_back(output[i]->emitted.front());
  StepReport report;
  report.sequences.push_back(std::move(s));
  report.rows = tree.rows(), report.running = 1;
  return report;
}

}  // namespace

Replay::Sums Replay::follow(TracedOutput output, LengthPolicy& policy, const Rule& rule, std::uint64_t number,
                            bool timed) const {
  const int prompt = trace_.requests[std::size_t(output[0]->request)].prompt_tokens;
  PastOnly past;
  past.id = number, past.batch = trace_.batch();
  int tested = 0, passed = 0;
  Sums sums;
  for (std::size_t t = 0; t < output.size();) {
    const CutTree widest = cut_of(*output[t], {});
    past.length = prompt + int(t), past.room = Budget{widest.rows(), widest.depth};
    const std::vector<Budget> budgets = policy.budgets({&past, 1});
    if (budgets.size() != 1)
      throw Error("the policy gave " + std::to_string(budgets.size()) + " budgets for 1 sequence");
    const Budget budget = budgets[0].or_root();
    const CutTree tree = cut_of(*output[t], {std::min(budget.depth, widest.depth), budget.nodes});
    const int accepted = accepted_of(rule.reach.reach(output, t, tree, rule.basis), number, t);
    ++past.rounds, past.drafted = int(tree.nodes.size()), past.accepted = accepted;
    tested += accepted + (accepted < tree.depth), passed += accepted;
    past.acceptance = tested > 0 ? double(passed) / tested : -1;
    StepReport report = report_of(number, tree, accepted, output, t);
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

#include "experiments/report/theory.h"

#include <cmath>

#include "experiments/report/divide.h"
namespace foretoken {

using nlohmann::json;

namespace {

constexpr double kFullLength = 0.9;  // of the draft length; sequences end in the middle of a draft

}  // namespace

double fixed_length(const json& run) {
  const json policy = run.value("policy", json::object());
  return policy.value("name", "") == "fixed" && policy.contains("length") ? policy["length"].get<double>() : 0;
}

TheoryFigures theory_of(const Summary& summary) {
  const SideFigures& side = summary.speculative;
  const bool positions_known = summary.left_out == 0 || side.drafted == 0;
  TheoryFigures theory = summary.theory;
  if (theory.draft_length == 0) theory.draft_length = positions_known ? double(summary.positions.size()) : kUnknown;
  theory.mean_drafted = divide(side.drafted, side.rounds);
  const double alpha = summary.alpha.value, full = theory.draft_length;
  double levels = 0, tau = 1;
  for (const PositionFigures& at : summary.positions)
    levels += at.drafted, tau += at.drafted / side.rounds * std::pow(alpha, at.position);
  theory.branched = positions_known && side.drafted > levels;
  theory.full_length =
      positions_known && !theory.branched && side.drafted > 0 && theory.mean_drafted >= kFullLength * full;
  const double g = theory.full_length ? full : theory.mean_drafted;
  if (theory.full_length) tau = alpha == 1 ? g + 1 : (1 - std::pow(alpha, g + 1)) / (1 - alpha);
  theory.tau = theory.branched || !positions_known ? kUnknown : tau;
  theory.plain_ms = 1000 * divide(summary.baseline.phases.target_forward, summary.baseline.rounds);
  theory.draft_ms = 1000 * divide(side.phases.draft_forward, side.drafted);
  theory.verify_ms = 1000 * divide(side.phases.target_forward, side.rounds);
  theory.cost = divide(theory.draft_ms, theory.plain_ms);
  const double drafting = side.drafted == 0 ? 0 : g * theory.draft_ms;
  theory.speedup = theory.tau * divide(theory.plain_ms, drafting + theory.verify_ms);
  return theory;
}

}  // namespace foretoken

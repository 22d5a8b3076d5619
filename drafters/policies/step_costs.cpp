#include "drafters/policies/step_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace foretoken {
namespace {

constexpr int kTerms = FittedCost::kTerms;
constexpr double kOutlier = 4;    // times the prediction: a step that took longer counts as one of so long
constexpr double kPrior = 2;      // steps that a correction of 1 counts as
constexpr double kKnown = 8;      // steps from which on outliers are known as such
constexpr int kScarce = 8;        // steps in a row that read prompts, from which on there are hardly any others
constexpr double kContext = 1e3;  // positions in a unit of the fit, so that its terms are of one size

double dot(const FittedCost::Terms& a, const FittedCost::Terms& b) {
  double sum = 0;
  for (std::size_t i = 0; i < std::size_t(kTerms); ++i) sum += a[i] * b[i];
  return sum;
}

FittedCost::Terms draft_terms(const StepShape& s) { return {s.depth > 0 ? 1.0 : 0.0, double(s.depth), s.levels}; }
FittedCost::Terms other_terms(const StepShape& s) { return {1, s.rows, s.context / kContext}; }
int scale_of(int batch) { return std::bit_width(unsigned(std::max(batch, 1))); }

// Solves a c = b for the terms in `chosen`, others 0, by elimination; false where a pivot or a coefficient is not
// positive.
bool solve_for(unsigned chosen, std::array<FittedCost::Terms, kTerms> a, FittedCost::Terms b, FittedCost::Terms& c) {
  c = {};
  std::array<std::size_t, kTerms> terms{};
  std::size_t n = 0;
  for (std::size_t i = 0; i < std::size_t(kTerms); ++i)
    if (chosen >> i & 1) terms[n++] = i;
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t p = terms[k];
    if (!(a[p][p] > 0)) return false;
    for (std::size_t l = k + 1; l < n; ++l) {
      const std::size_t row = terms[l];
      const double factor = a[row][p] / a[p][p];
      for (std::size_t j = k; j < n; ++j) a[row][terms[j]] -= factor * a[p][terms[j]];
      b[row] -= factor * b[p];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    double rest = b[terms[k]];
    for (std::size_t j = k + 1; j < n; ++j) rest -= a[terms[k]][terms[j]] * c[terms[j]];
    c[terms[k]] = rest / a[terms[k]][terms[k]];
    if (!(c[terms[k]] >= 0)) return false;
  }
  return true;
}

}  // namespace

void FittedCost::add(const Terms& x, double seconds) {
  steps_ = fading_ * steps_ + 1;
  for (std::size_t i = 0; i < std::size_t(kTerms); ++i) {
    for (std::size_t j = 0; j < std::size_t(kTerms); ++j) xx_[i][j] = fading_ * xx_[i][j] + x[i] * x[j];
    xs_[i] = fading_ * xs_[i] + x[i] * seconds;
  }
  solve();
}

double FittedCost::of(const Terms& x) const { return dot(c_, x); }

// The best fit over every subset of the terms is the nonnegative one: the terms that it leaves out are those at 0.
void FittedCost::solve() {
  auto a = xx_;
  for (std::size_t i = 0; i < std::size_t(kTerms); ++i) a[i][i] *= 1 + 1e-6;  // where terms move together
  double least = 0;                                                           // of c^T a c - 2 c^T b
  c_ = {};
  for (unsigned chosen = 1; chosen < 1u << kTerms; ++chosen) {
    Terms c{};
    if (!solve_for(chosen, a, xs_, c)) continue;
    double error = -2 * dot(c, xs_);
    for (std::size_t i = 0; i < std::size_t(kTerms); ++i) error += c[i] * dot(xx_[i], c);
    if (error < least) {
      least = error;
      c_ = c;
    }
  }
}

double StepCosts::fitted(const StepShape& step) const {
  return draft_.of(draft_terms(step)) + other_.of(other_terms(step));
}

void StepCosts::add(const StepShape& step, const Phases& phases) {
  const double draft = phases.draft_forward + phases.draft_other, total = phases.total, expected = seconds(step);
  if (!(total > 0) || !std::isfinite(total) || !(draft >= 0) || draft > total) return;
  const double kept = other_.steps() >= kKnown && expected > 0 ? std::min(1.0, kOutlier * expected / total) : 1.0;
  draft_.add(draft_terms(step), kept * draft);
  other_.add(other_terms(step), kept * (total - draft));
  if (const double fit = fitted(step); fit > 0) {
    Correction& c = corrections_[{step.depth, scale_of(step.batch)}];
    c.steps = fading_ * c.steps + 1;
    c.ratio = fading_ * c.ratio + kept * total / fit;
  }
  ++measured_[step.depth];
}

double StepCosts::seconds(const StepShape& step) const {
  const double fit = fitted(step);
  const auto found = corrections_.find({step.depth, scale_of(step.batch)});
  if (found == corrections_.end()) return fit;
  return fit * (found->second.ratio + kPrior) / (found->second.steps + kPrior);
}

int StepCosts::measured(int depth) const {
  const auto found = measured_.find(depth);
  return found == measured_.end() ? 0 : found->second;
}

bool TimedSteps::tells(const StepReport& report, bool drafts) {
  const auto reads = [](const SequenceReport& s) { return s.prompt_rows > 0 || !s.judged; };
  const bool prompts = std::ranges::any_of(report.sequences, reads);
  with_prompts_ = prompts ? with_prompts_ + 1 : 0;
  if (std::ranges::none_of(report.sequences, &SequenceReport::judged)) return false;
  const bool caught_up = !drafts || drafted_;
  drafted_ = drafts;
  return report.recorded == 0 && report.preempted == 0 && caught_up && (!prompts || with_prompts_ > kScarce);
}

Budget level_budget(int levels, int width) {
  return {.nodes = std::min(1 + levels * width, kMaxNodes), .depth = levels};
}

}  // namespace foretoken

#include <algorithm>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/statistics.h"
#include "experiments/conformance/target_distribution.h"

namespace foretoken::conformance {
namespace {

int cell_of(const Tokens& text, int tokens, int vocab) {
  int cell = 0;
  for (int k = 0; k < tokens; ++k) cell = cell * vocab + text[std::size_t(k)];
  return cell;
}

// The probability of every output of `tokens` tokens.
std::vector<double> joint_law(const TableModel& target, const SampledCase& c) {
  std::vector<double> law{1};
  std::vector<Tokens> contexts{c.prompt};
  for (int k = 0; k < c.tokens; ++k) {
    std::vector<double> wider;
    std::vector<Tokens> longer;
    for (std::size_t i = 0; i < law.size(); ++i) {
      const auto p = target_distribution(target, contexts[i], int(c.prompt.size()), c.scenario.sampling);
      for (Token x = 0; x < target.info().vocab; ++x) {
        wider.push_back(law[i] * p[std::size_t(x)]);
        longer.push_back(contexts[i]);
        longer.back().push_back(x);
      }
    }
    law = std::move(wider), contexts = std::move(longer);
  }
  return law;
}

}  // namespace

Finding sampled(const Subject& subject, const SampledCase& c, HostBackend& backend) {
  Finding f{.what = subject.text()};
  const Models models = table_models(c.target);
  const std::vector<double> law = joint_law(static_cast<const TableModel&>(*models.target), c);
  std::vector<long> counts(law.size(), 0);
  Renaming renaming(c.rename);
  backend.set_chance(c.rename ? &renaming : nullptr);
  f.cases = sample_size(int(law.size()), c.found, c.level, 0.99);
  constexpr long kOneEngine = 1024;  // requests; every step looks at all that wait
  for (long done = 0; done < f.cases; done += kOneEngine) {
    std::vector<TestRequest> requests;
    for (long i = done; i < std::min(f.cases, done + kOneEngine); ++i)
      requests.push_back({c.prompt, std::uint64_t(i), c.tokens + 1});
    const RunOutcome outcome = run_scenario(subject, c.scenario, backend, models, requests);
    for (const Tokens& t : outcome.outputs) ++counts[std::size_t(cell_of(t, c.tokens, c.target.vocab))];
    f.accepted += outcome.accepted, f.rejected += outcome.rejections;
  }
  backend.set_chance(nullptr);
  const ChiSquare result = chi_square(counts, law);
  f.measure = result.p_value;
  f.what += ": chi-square " + std::to_string(result.statistic) + " of " + std::to_string(result.freedom) +
            " degrees, " + std::to_string(f.cases) + " texts";
  f.holds = result.p_value > c.level;
  return f;
}

}  // namespace foretoken::conformance

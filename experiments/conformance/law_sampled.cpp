#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

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

Tokens text_of_cell(int cell, int tokens, int vocab) {
  Tokens text(std::size_t(tokens), 0);
  for (; tokens > 0; cell /= vocab) text[std::size_t(--tokens)] = cell % vocab;
  return text;
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

// The outputs whose counts are the farthest from the expected ones, in their standard deviations.
std::string least_as_expected(const SampledCase& c, std::span<const long> counts, std::span<const double> law) {
  constexpr std::size_t kMost = 3;
  const double n = double(std::accumulate(counts.begin(), counts.end(), 0l));
  std::vector<std::size_t> cells(law.size());
  std::iota(cells.begin(), cells.end(), std::size_t(0));
  const auto off = [&](std::size_t i) {
    const double expected = n * law[i], deviation = std::sqrt(std::max(expected * (1 - law[i]), 1e-9));
    return (double(counts[i]) - expected) / deviation;
  };
  std::ranges::sort(cells, std::greater{}, [&](std::size_t i) { return std::abs(off(i)); });
  std::string text = "after [" + text_of(c.prompt) + "]";
  for (std::size_t k = 0; k < std::min(kMost, cells.size()); ++k)
    text += std::string(k > 0 ? "," : "") + " [" + text_of(text_of_cell(int(cells[k]), c.tokens, c.target.vocab)) +
            "] came " + std::to_string(counts[cells[k]]) + " times instead of " +
            std::to_string(std::lround(n * law[cells[k]])) + " (z = " + text_of(off(cells[k])) + ")";
  return text;
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
  f.where = least_as_expected(c, counts, law);
  f.holds = result.p_value > c.level;
  return f;
}

}  // namespace foretoken::conformance

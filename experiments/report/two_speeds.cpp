#include "experiments/report/two_speeds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "experiments/report/statistics.h"

namespace foretoken {

namespace {

constexpr std::size_t kFewest = 24;  // blocks that say anything
constexpr double kLeastSeconds = 1e-9;
constexpr double kLeastGroup = 0.1;                // of all
constexpr double kLeastRatio = 1.05;               // of two speeds that matter
constexpr double kUniform = 0.75, kSpread = 0.62;  // of what two groups of uniform draws explain

// Blocks of all alternations with equal rows.
struct Blocks {
  std::vector<double> logs, contexts;
  std::vector<std::pair<double, double>> slopes;  // from each to the next: of the logarithm over the context, which
                                                  // changes by the second
};

Blocks blocks_of(const std::vector<Alternation>& repeats, SideOf side) {
  Blocks all;
  long rows = 0;
  for (const Alternation& repeat : repeats) {
    const auto& [own, steps, seconds, contexts] = (repeat.*side).step_blocks.value_or(BlockTimes{});
    if (rows == 0) rows = own;
    if (own != rows) continue;  // a drafter that learns may draft otherwise
    for (std::size_t i = 0; i < std::min(seconds.size(), contexts.size()); ++i) {
      all.logs.push_back(std::log(std::max(seconds[i], kLeastSeconds))), all.contexts.push_back(contexts[i]);
      if (i == 0) continue;
      const std::size_t n = all.logs.size();
      const double more = contexts[i] - contexts[i - 1];
      if (more != 0) all.slopes.push_back({(all.logs[n - 1] - all.logs[n - 2]) / more, std::abs(more)});
    }
  }
  return all;
}

// What a token of context adds to the logarithm: the slope with the least absolute deviations from one block to the
// next, since few of these changes are the machine's. Nothing gets faster by it.
double slope_of(std::vector<std::pair<double, double>> slopes) {
  std::ranges::sort(slopes);
  double half = 0, seen = 0;
  for (const auto& [slope, weight] : slopes) half += weight / 2;
  for (const auto& [slope, weight] : slopes) {
    seen += weight;
    if (seen >= half) return std::max(0.0, slope);
  }
  return 0;
}

std::vector<double> without_context(Blocks blocks) {
  const double slope = slope_of(std::move(blocks.slopes));
  for (std::size_t i = 0; i < blocks.logs.size(); ++i) blocks.logs[i] -= slope * blocks.contexts[i];
  return std::move(blocks.logs);
}

}  // namespace

std::optional<TwoSpeeds> two_speeds(std::span<const double> logs) {
  if (logs.size() < kFewest) return std::nullopt;
  std::vector<double> sorted(logs.begin(), logs.end());
  std::ranges::sort(sorted);
  const double n = double(sorted.size()), centre = mean(sorted);
  double all = 0;
  for (const double x : sorted) all += (x - centre) * (x - centre);
  double below = 0, most = 0;
  TwoSpeeds found;
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    below += sorted[i - 1] - centre;  // what the first i are below the centre in all, the others are above it
    const double faster = double(i), slower = n - faster;
    if (std::min(faster, slower) < kLeastGroup * n) continue;
    const double apart = -below / slower - below / faster, between = faster * slower / n * apart * apart;
    if (between > most) most = between, found = {std::exp(apart), slower / n};
  }
  if (found.ratio < kLeastRatio || most <= (kUniform + kSpread / std::sqrt(n)) * all) return std::nullopt;
  return found;
}

std::vector<SideSpeeds> two_speeds_of(const std::vector<Alternation>& repeats) {
  std::vector<SideSpeeds> found;
  for (const auto& [name, side] :
       {std::pair("baseline", &Alternation::baseline), std::pair("speculative", &Alternation::speculative)})
    if (const auto speeds = two_speeds(without_context(blocks_of(repeats, side))))
      found.push_back({name, speeds->ratio, speeds->slower});
  return found;
}

}  // namespace foretoken

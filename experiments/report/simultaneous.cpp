// Intervals that hold together.
#include <algorithm>
#include <cmath>
#include <map>

#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>

#include "experiments/report/statistics.h"
#include "kernels/philox.h"

namespace foretoken {
namespace {

// kResamples quantiles, evenly spaced, of a standard normal variable.
const std::vector<double>& normal_quantiles() {
  static const std::vector<double> found = [] {
    std::vector<double> all;
    for (int k = 0; k < kResamples; ++k)
      all.push_back(boost::math::quantile(boost::math::normal(), (k + 0.5) / kResamples));
    return all;
  }();
  return found;
}

// The same of a standard error, over the true one: sqrt(chi^2(f) / f). Of freedoms a quarter apart, since they are slow
// to find.
const std::vector<double>& error_quantiles(double freedom) {
  static std::map<double, std::vector<double>> known;
  const double rounded = std::max(1.0, std::floor(4 * freedom) / 4);
  std::vector<double>& found = known[rounded];
  for (int k = 0; found.size() < std::size_t(kResamples); ++k)
    found.push_back(
        std::sqrt(boost::math::quantile(boost::math::chi_squared(rounded), (k + 0.5) / kResamples) / rounded));
  return found;
}

// Deviations of one ratio as they would fall by chance, in half-widths as they would be found with them: of the prompts
// those of the resamples, of the machine normal ones, and both levels' standard errors vary as their degrees of freedom
// say. That of the prompts is the same for all ratios of a resample.
std::vector<double> by_chance(const Resampled& ratio, int number) {
  const auto [low, high] = spread(ratio.prompts);
  const auto pick = [](const std::vector<double>& quantiles, std::uint32_t word) {
    return quantiles[std::size_t(std::uint64_t(word) * std::uint64_t(kResamples) >> 32)];
  };
  std::vector<double> found(kResamples, 0);
  for (int b = 0; b < kResamples; ++b) {
    const Philox own = philox4x32_10(std::uint32_t(b), std::uint32_t(number), 0, 0, 0x63686e63u, 0x65736f6eu),
                 shared = philox4x32_10(std::uint32_t(b), 0, 1, 0, 0x63686e63u, 0x65736f6eu);
    double& deviation = found[std::size_t(b)];
    Level prompts{0, ratio.prompts_freedom}, machine{0, ratio.machine_freedom};
    if (machine.freedom > 0) {
      deviation += ratio.machine * pick(normal_quantiles(), own.word[0]);
      machine.error = ratio.machine * pick(error_quantiles(machine.freedom), own.word[1]);
    }
    if (prompts.freedom > 0) {
      deviation += ratio.prompts[std::size_t(b)];
      prompts.error = std::max(0.0, deviation < 0 ? -low : high) / normal() *
                      pick(error_quantiles(prompts.freedom), shared.word[0]);
    }
    const double half = half_width(prompts, machine);
    deviation = half > 0 && std::isfinite(deviation) ? std::abs(deviation) / half : 0;
  }
  return found;
}

}  // namespace

std::vector<Interval> simultaneous_intervals(std::span<const Resampled> ratios) {
  std::vector<double> extremes(kResamples, 0);  // of each draw, in half-widths
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    if (!ratios[i].bounded()) continue;
    const std::vector<double> chance = by_chance(ratios[i], int(i));
    for (std::size_t b = 0; b < chance.size(); ++b) extremes[b] = std::max(extremes[b], chance[b]);
  }
  std::ranges::sort(extremes);
  const double wider = std::max(1.0, quantile(extremes, 1 - 2 * kTail));
  std::vector<Interval> found;
  for (const Resampled& ratio : ratios) {
    const Interval alone = interval_of(ratio);
    found.push_back(alone);
    if (alone.bounded())
      found.back() = {alone.value, alone.value * std::pow(alone.low / alone.value, wider),
                      alone.value * std::pow(alone.high / alone.value, wider)};
  }
  return found;
}

}  // namespace foretoken

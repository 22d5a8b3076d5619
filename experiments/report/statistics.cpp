#include "experiments/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>

#include "kernels/philox.h"

namespace foretoken {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kTail = 0.025;

// What is resampled. Part of the name of a draw, so two levels never share draws.
enum class Level : std::uint32_t { prompts, repeats };

// The index, below n, that draw `index` of a resample selects.
int place(int resample, int index, Level level, int n) {
  const Philox drawn = philox4x32_10(std::uint32_t(resample), std::uint32_t(index) >> 2, std::uint32_t(level), 0,
                                     0x626f6f74u, 0x73747270u);
  return int(std::uint64_t(drawn.word[index & 3]) * std::uint64_t(n) >> 32);
}

double same(double x) { return x; }
double logarithm(double x) { return std::log(x); }

// The deviation of each resample's ratio from the ratio of all, on a scale, widened for few terms.
std::vector<double> deviations(std::span<const Term> terms, Level level, double (*scale)(double)) {
  const int n = int(terms.size());
  const double centre = scale(ratio_of_totals(terms)), widening = small_sample_widening(n);
  std::vector<double> found(kResamples);
  std::vector<Term> resampled(terms.size());
  for (int b = 0; b < kResamples; ++b) {
    for (int i = 0; i < n; ++i) resampled[i] = terms[place(b, i, level, n)];
    found[b] = widening * (scale(ratio_of_totals(resampled)) - centre);
  }
  return found;
}

// Between the two nearest order statistics, as numpy does by default.
double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * double(sorted.size() - 1);
  const std::size_t below = std::size_t(at), above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - double(below)) * (sorted[above] - sorted[below]);
}

// The middle 95 % of the deviations; NaN deviations had a zero denominator and are left out.
std::pair<double, double> spread(std::vector<double> deviations) {
  std::erase_if(deviations, [](double d) { return !std::isfinite(d); });
  if (deviations.empty()) return {0, 0};
  std::ranges::sort(deviations);
  return {quantile(deviations, kTail), quantile(deviations, 1 - kTail)};
}

// Totals over repeats of every prompt, or over prompts of every repeat.
std::vector<Term> totals(const Measurements& measured, Level level) {
  std::vector<Term> sums(level == Level::prompts ? measured.prompts : measured.repeats, Term{0, 0, 0, 0});
  for (int p = 0; p < measured.prompts; ++p)
    for (int r = 0; r < measured.repeats; ++r) sums[level == Level::prompts ? p : r] += measured.at(p, r);
  return sums;
}

}  // namespace

Interval Interval::unknown() { return {kUnknown, kUnknown, kUnknown}; }
bool Interval::known() const { return !std::isnan(value); }
bool Interval::bounded() const { return !std::isnan(low) && !std::isnan(high); }

Term& Term::operator+=(const Term& other) {
  top += other.top;
  bottom += other.bottom;
  base_top += other.base_top;
  base_bottom += other.base_bottom;
  return *this;
}

double ratio_of_totals(std::span<const Term> terms) {
  Term sum{0, 0, 0, 0};
  for (const Term& term : terms) sum += term;
  if (sum.bottom == 0 || sum.base_top == 0 || sum.base_bottom == 0) return kUnknown;
  return (sum.top / sum.bottom) / (sum.base_top / sum.base_bottom);
}

double small_sample_widening(int n) {
  if (n < 2) return 1;
  const double t = quantile(boost::math::complement(boost::math::students_t(n - 1), kTail));
  const double z = quantile(boost::math::complement(boost::math::normal(), kTail));
  return t / z * std::sqrt(double(n) / (n - 1));
}

Interval prompt_interval(std::span<const Term> prompts, double most) {
  const double value = ratio_of_totals(prompts);
  if (!std::isfinite(value)) return Interval::unknown();
  std::vector<Term> telling;
  std::ranges::copy_if(prompts, std::back_inserter(telling), [](const Term& term) { return term.bottom > 0; });
  if (telling.size() < 2) return {value, kUnknown, kUnknown};
  const auto [low, high] = spread(deviations(telling, Level::prompts, same));
  return {value, std::max(value + low, 0.0), std::min(value + high, most)};
}

Interval paired_interval(const Measurements& measured) {
  const std::vector<Term> prompts = totals(measured, Level::prompts), repeats = totals(measured, Level::repeats);
  const double value = ratio_of_totals(prompts);
  if (!(value > 0) || !std::isfinite(value)) return Interval::unknown();
  if (prompts.size() < 2 && repeats.size() < 2) return {value, kUnknown, kUnknown};
  std::vector<double> both = deviations(prompts, Level::prompts, logarithm);
  const std::vector<double> machine = deviations(repeats, Level::repeats, logarithm);
  for (int b = 0; b < kResamples; ++b) both[b] += machine[b];
  const auto [low, high] = spread(std::move(both));
  return {value, value * std::exp(low), value * std::exp(high)};
}

double median(std::vector<double> values) {
  if (values.empty()) return kUnknown;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace foretoken

#include "experiments/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/beta.hpp>

#include "kernels/philox.h"

namespace foretoken {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kTail = 0.025;

// What is resampled. Part of the name of a draw, so two levels never share draws.
enum class Level : std::uint32_t { prompts, repeats, repeats_of_base };

// The index, below n, that draw `index` of a resample selects.
int place(int resample, int index, Level level, int n) {
  const Philox drawn = philox4x32_10(std::uint32_t(resample), std::uint32_t(index) >> 2, std::uint32_t(level), 0,
                                     0x626f6f74u, 0x73747270u);
  return int(std::uint64_t(drawn.word[index & 3]) * std::uint64_t(n) >> 32);
}

double same(double x) { return x; }
double logarithm(double x) { return std::log(x); }

// The deviation of each resample's ratio from the ratio of all, on a scale, widened for few terms.
std::vector<double> deviations(std::span<const Term> terms, Level level, double (*scale)(double), double freedom) {
  const int n = int(terms.size());
  const double centre = scale(ratio_of_totals(terms)), widening = small_sample_widening(n, freedom);
  std::vector<double> found(kResamples);
  std::vector<Term> resampled(terms.size());
  for (int b = 0; b < kResamples; ++b) {
    for (int i = 0; i < n; ++i) resampled[i] = terms[place(b, i, level, n)];
    found[b] = widening * (scale(ratio_of_totals(resampled)) - centre);
  }
  return found;
}

// Adds those of the logarithm.
void add_deviations(std::span<const Term> terms, Level level, double sign, double freedom, std::vector<double>& sums) {
  const std::vector<double> found = deviations(terms, level, logarithm, freedom);
  for (int b = 0; b < kResamples; ++b) sums[std::size_t(b)] += sign * found[std::size_t(b)];
}

// The variance of the mean logarithm of the alternations' ratios, of at least two.
double mean_variance(const std::vector<Term>& repeats) {
  std::vector<double> logs;
  for (const Term& t : repeats) logs.push_back(std::log(ratio_of_totals(std::span(&t, 1))));
  double mean = 0, squares = 0;
  for (const double x : logs) mean += x / double(logs.size());
  for (const double x : logs) squares += (x - mean) * (x - mean);
  return squares / double(logs.size() - 1) / double(logs.size());
}

// kResamples quantiles of Student's distribution, evenly spaced; of freedoms a quarter apart, since they are slow to
// find.
const std::vector<double>& students_quantiles(double freedom) {
  static std::map<double, std::vector<double>> known;
  const double rounded = std::max(1.0, std::floor(4 * freedom) / 4);
  std::vector<double>& found = known[rounded];
  for (int k = 0; found.size() < std::size_t(kResamples); ++k)
    found.push_back(boost::math::quantile(boost::math::students_t(rounded), (k + 0.5) / kResamples));
  return found;
}

// A draw from Student's distribution: of resample b, of ratio number `ratio`.
double students_draw(int b, int ratio, const std::vector<double>& quantiles) {
  const Philox drawn = philox4x32_10(std::uint32_t(b), std::uint32_t(ratio), 0, 0, 0x73747564u, 0x656e7473u);
  return quantiles[std::size_t(std::uint64_t(drawn.word[0]) * std::uint64_t(kResamples) >> 32)];
}

// Deviations of one ratio as they would fall by chance: what is maximized over all ratios.
std::vector<double> by_chance(const Resampled& ratio, int number) {
  std::vector<double> found = ratio.prompts.empty() ? std::vector<double>(kResamples) : ratio.prompts;
  if (!(ratio.machine > 0)) return found;
  const std::vector<double>& quantiles = students_quantiles(ratio.freedom);
  for (int b = 0; b < kResamples; ++b) found[std::size_t(b)] += ratio.machine * students_draw(b, number, quantiles);
  return found;
}

// The middle 95 % of the deviations; NaN deviations had a zero denominator and are left out.
std::pair<double, double> spread(std::vector<double> deviations) {
  std::erase_if(deviations, [](double d) { return !std::isfinite(d); });
  if (deviations.empty()) return {0, 0};
  std::ranges::sort(deviations);
  return {quantile(deviations, kTail), quantile(deviations, 1 - kTail)};
}

std::vector<Term> with_trials(std::span<const Term> units) {
  std::vector<Term> kept;
  std::ranges::copy_if(units, std::back_inserter(kept), [](const Term& unit) { return unit.bottom > 0; });
  return kept;
}

// The quantile of Student's distribution that bounds the middle 95 %.
double students(double freedom) { return boost::math::quantile(boost::math::students_t(freedom), 1 - kTail); }

// How many independent trials would vary as much as these, whose share of successes is `share`. The fewer the units,
// the less is known of their variance, which counts like fewer trials.
double independent_trials(std::span<const Term> units, double share) {
  double trials = 0, squares = 0;
  for (const Term& u : units) {
    const double deviation = u.top - share * u.bottom;
    trials += u.bottom, squares += deviation * deviation;
  }
  const double n = double(units.size()), variance = n / (n - 1) * squares / (trials * trials),
               alone = share * (1 - share) / (trials - 1);
  if (!(alone > 0)) return trials;
  const double fewer = students(trials - 1) / students(n - 1);
  return std::min(trials, trials * alone / variance * fewer * fewer);
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

double small_sample_widening(int n, double freedom) {
  if (n < 2) return 1;
  const double t = quantile(boost::math::complement(boost::math::students_t(freedom), kTail));
  const double z = quantile(boost::math::complement(boost::math::normal(), kTail));
  return t / z * std::sqrt(double(n) / (n - 1));
}

double quantile(std::span<const double> sorted, double share) {
  if (sorted.empty()) return kUnknown;
  const double at = share * double(sorted.size() - 1);
  const std::size_t below = std::size_t(at), above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - double(below)) * (sorted[above] - sorted[below]);
}

Interval mean_interval(std::span<const Term> units, double least, double most) {
  const double value = ratio_of_totals(units);
  if (!std::isfinite(value)) return Interval::unknown();
  const std::vector<Term> telling = with_trials(units);
  if (telling.size() < 2) return {value, kUnknown, kUnknown};
  const auto [low, high] = spread(deviations(telling, Level::prompts, same, int(telling.size()) - 1));
  return {value, std::max(value + low, least), std::min(value + high, most)};
}

Interval prompt_interval(std::span<const Term> prompts, double most) { return mean_interval(prompts, 0, most); }

Interval share_interval(std::span<const Term> units) {
  const double share = ratio_of_totals(units);
  if (!std::isfinite(share)) return Interval::unknown();
  const std::vector<Term> telling = with_trials(units);
  if (telling.size() < 2) return {share, kUnknown, kUnknown};
  const double trials = independent_trials(telling, share), successes = share * trials;
  const double low = share > 0 ? boost::math::ibeta_inv(successes, trials - successes + 1, kTail) : 0,
               high = share < 1 ? boost::math::ibeta_inv(successes + 1, trials - successes, 1 - kTail) : 1;
  return {share, low, high};
}

Resampled resampled(const Measurements& measured) {
  const std::vector<Term> prompts = totals(measured, Level::prompts), repeats = totals(measured, Level::repeats);
  const double value = ratio_of_totals(prompts);
  if (!(value > 0) || !std::isfinite(value)) return {kUnknown, {}};
  if (prompts.size() < 2 && repeats.size() < 2) return {value, {}};
  Resampled found{value, {}, std::vector<double>(kResamples)};
  add_deviations(prompts, Level::prompts, 1, measured.prompts - 1, found.prompts);
  found.deviations = found.prompts;
  add_deviations(repeats, Level::repeats, 1, measured.repeats - 1, found.deviations);
  if (measured.repeats > 1) found.machine = std::sqrt(mean_variance(repeats)), found.freedom = measured.repeats - 1;
  return found;
}

namespace {

// The standard error of the alternations of two sides, and its degrees of freedom.
void set_machine(const Measurements& a, const Measurements& b, bool together, Resampled& ratio) {
  const std::vector<Term> of_a = totals(a, Level::repeats), of_b = totals(b, Level::repeats);
  if (together) {
    std::vector<Term> both;
    for (std::size_t r = 0; r < of_a.size(); ++r)
      both.push_back({ratio_of_totals(std::span(&of_b[r], 1)), ratio_of_totals(std::span(&of_a[r], 1)), 1, 1});
    ratio.machine = std::sqrt(mean_variance(both)), ratio.freedom = a.repeats - 1;
    return;
  }
  const double va = mean_variance(of_a), vb = mean_variance(of_b), all = va + vb;
  ratio.machine = std::sqrt(all);
  ratio.freedom = all > 0 ? all * all / (va * va / (a.repeats - 1) + vb * vb / (b.repeats - 1)) : 1;
}

}  // namespace

Resampled resampled_ratio(const Measurements& a, const Measurements& b, bool interleaved) {
  const double below = ratio_of_totals(a.terms), value = ratio_of_totals(b.terms) / below;
  if (!(value > 0) || !(below > 0) || !std::isfinite(value)) return {kUnknown, {}};
  const bool once = a.repeats < 2 || b.repeats < 2;
  if (a.prompts != b.prompts || (once && (a.prompts < 2 || a.repeats != b.repeats))) return {value, {}};
  Resampled found{value, {}, std::vector<double>(kResamples)};
  const bool together = interleaved && a.repeats == b.repeats;
  if (!once) set_machine(a, b, together, found);
  for (const Measurements* side : {&b, &a})
    add_deviations(totals(*side, Level::prompts), Level::prompts, side == &b ? 1 : -1, side->prompts - 1,
                   found.prompts);
  found.deviations = found.prompts;
  for (const Measurements* side : {&b, &a}) {
    const Level level = side == &b || together ? Level::repeats : Level::repeats_of_base;
    if (!once) add_deviations(totals(*side, level), level, side == &b ? 1 : -1, found.freedom, found.deviations);
  }
  return found;
}

Interval interval_of(const Resampled& ratio) {
  if (ratio.deviations.empty()) return {ratio.value, kUnknown, kUnknown};
  const auto [low, high] = spread(ratio.deviations);
  return {ratio.value, ratio.value * std::exp(low), ratio.value * std::exp(high)};
}

std::vector<Interval> simultaneous_intervals(std::span<const Resampled> ratios) {
  std::vector<double> extremes(kResamples, 0);  // of each draw, in half-widths
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    if (ratios[i].deviations.empty()) continue;
    const std::vector<double> chance = by_chance(ratios[i], int(i));
    const auto [low, high] = spread(chance);
    for (std::size_t b = 0; b < chance.size(); ++b)
      if (const double half = chance[b] < 0 ? low : high; half != 0 && std::isfinite(chance[b]))
        extremes[b] = std::max(extremes[b], chance[b] / half);
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

Interval paired_interval(const Measurements& measured) { return interval_of(resampled(measured)); }

double median(std::vector<double> values) {
  if (values.empty()) return kUnknown;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace foretoken

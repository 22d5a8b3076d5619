#include "experiments/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numbers>

#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/beta.hpp>

#include "kernels/philox.h"

namespace foretoken {
namespace {

double same(double x) { return x; }
double logarithm(double x) { return std::log(x); }

// The deviation of each resample's ratio from the ratio of all, on a scale, widened as that of few terms must be.
std::vector<double> deviations(std::span<const Term> terms, double (*scale)(double), double widening) {
  const int n = int(terms.size());
  const double centre = scale(ratio_of_totals(terms));
  std::vector<double> found(kResamples);
  std::vector<Term> resampled(terms.size());
  for (int b = 0; b < kResamples; ++b) {
    for (int i = 0; i < n; ++i) resampled[i] = terms[std::size_t(resampled_prompt(b, i, n))];
    found[b] = widening * (scale(ratio_of_totals(resampled)) - centre);
  }
  return found;
}

// The variance of the mean of the logarithms of the alternations' ratios.
double logarithm_variance(const std::vector<Term>& repeats) {
  std::vector<double> logs;
  for (const Term& t : repeats) logs.push_back(std::log(ratio_of_totals(std::span(&t, 1))));
  return mean_variance(logs);
}

// How much each term moves the logarithm of the ratio of totals, to first order.
std::vector<double> influences(std::span<const Term> terms) {
  Term sum{0, 0, 0, 0};
  for (const Term& t : terms) sum += t;
  std::vector<double> found;
  for (const Term& t : terms)
    found.push_back(t.top / sum.top - t.bottom / sum.bottom - t.base_top / sum.base_top +
                    t.base_bottom / sum.base_bottom);
  return found;
}

std::vector<Term> with_trials(std::span<const Term> units) {
  std::vector<Term> kept;
  std::ranges::copy_if(units, std::back_inserter(kept), [](const Term& unit) { return unit.bottom > 0; });
  return kept;
}

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

std::vector<Term> totals_of_prompts(const Measurements& measured) {
  std::vector<Term> sums(std::size_t(measured.prompts), Term{0, 0, 0, 0});
  for (int p = 0; p < measured.prompts; ++p)
    for (int r = 0; r < measured.repeats; ++r) sums[std::size_t(p)] += measured.at(p, r);
  return sums;
}

std::vector<Term> totals_of_repeats(const Measurements& measured) {
  std::vector<Term> sums(std::size_t(measured.repeats), Term{0, 0, 0, 0});
  for (int p = 0; p < measured.prompts; ++p)
    for (int r = 0; r < measured.repeats; ++r) sums[std::size_t(r)] += measured.at(p, r);
  return sums;
}

// The variance of the logarithm over alternations, of one side of a ratio. Where the prompts' own effects cancel, the
// noise of each measurement is most of the variance over prompts, and would count twice: V(prompts) + V(alternations) -
// V(both) is the variance of a mean over two ways (Cameron, Gelbach and Miller 2011). At least half is left, since the
// difference is uncertain.
double machine_variance(const Measurements& measured) {
  const double whole = logarithm_variance(totals_of_repeats(measured)), n = measured.prompts, r = measured.repeats;
  if (n < 2 || !measured.again.empty()) return whole;  // a queue run again has no noise
  const std::vector<double> each = influences(measured.terms), prompts = influences(totals_of_prompts(measured)),
                            repeats = influences(totals_of_repeats(measured));
  double squares = 0;
  for (int p = 0; p < measured.prompts; ++p)
    for (int k = 0; k < measured.repeats; ++k) {
      const double own =
          each[std::size_t(p * measured.repeats + k)] - prompts[std::size_t(p)] / r - repeats[std::size_t(k)] / n;
      squares += own * own;
    }
  return std::max(whole / 2, whole - squares * n * r / ((n - 1) * (r - 1)));
}

// Resamples the prompts of a side; the ratio of its totals stands above (sign 1) or below (-1).
void add_prompts(const Measurements& side, double sign, Resampled& ratio) {
  if (side.prompts < 2) return;
  const double n = side.prompts;
  const double widening = std::sqrt(n / (n - 1));
  std::vector<double> found = side.again;
  for (double& deviation : found) deviation *= widening;
  if (found.empty()) found = deviations(totals_of_prompts(side), logarithm, widening);
  ratio.prompts.resize(kResamples), ratio.prompts_freedom = n - 1;
  for (std::size_t b = 0; b < found.size(); ++b) ratio.prompts[b] += sign * found[b];
}

// The standard error of the alternations of two sides, and its degrees of freedom.
void set_machine(const Measurements& a, const Measurements& b, Resampled& ratio) {
  const double va = machine_variance(a), vb = machine_variance(b), all = va + vb;
  ratio.machine = std::sqrt(all);
  ratio.machine_freedom = all > 0 ? all * all / (va * va / (a.repeats - 1) + vb * vb / (b.repeats - 1)) : 1;
}

constexpr double kStep = 1.01, kUnit = 1e-6;

double begin_of(int bin) { return kUnit * std::pow(kStep, bin); }

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

double normal() {
  static const double found = boost::math::quantile(boost::math::normal(), 1 - kTail);
  return found;
}

double students(double freedom) {
  static std::map<int, double> known;
  const double rounded = freedom < 64 ? std::round(8 * freedom) / 8 : std::round(freedom);
  double& found = known[int(8 * std::min(rounded, 1e6))];
  if (found == 0) found = boost::math::quantile(boost::math::students_t(rounded), 1 - kTail);
  return found;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum / double(values.size());
}

double mean_variance(const std::vector<double>& values) {
  const double n = double(values.size()), middle = mean(values);
  double squares = 0;
  for (const double x : values) squares += (x - middle) * (x - middle);
  return squares / (n - 1) / n;
}

// The middle 95 % of the deviations; NaN deviations had a zero denominator and are left out.
std::pair<double, double> spread(std::vector<double> deviations) {
  std::erase_if(deviations, [](double d) { return !std::isfinite(d); });
  if (deviations.empty()) return {0, 0};
  std::ranges::sort(deviations);
  return {quantile(deviations, kTail), quantile(deviations, 1 - kTail)};
}

double half_width(const Level& a, const Level& b) {
  const double separate =
      std::hypot(a.freedom > 0 ? students(a.freedom) * a.error : 0, b.freedom > 0 ? students(b.freedom) * b.error : 0);
  if (!(a.error > 0 && b.error > 0)) return separate;
  const double va = a.error * a.error, vb = b.error * b.error;
  const double together = students((va + vb) * (va + vb) / (va * va / a.freedom + vb * vb / b.freedom));
  return std::sqrt(separate * together * std::sqrt(va + vb));
}

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

int resampled_prompt(int resample, int prompt, int n) {
  const Philox drawn =
      philox4x32_10(std::uint32_t(resample), std::uint32_t(prompt) >> 2, 0, 0, 0x626f6f74u, 0x73747270u);
  return int(std::uint64_t(drawn.word[prompt & 3]) * std::uint64_t(n) >> 32);
}

double small_sample_widening(int n, double freedom) {
  if (n < 2) return 1;
  return students(freedom) / normal() * std::sqrt(double(n) / (n - 1));
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
  if (telling.size() < 2) return Interval::of(value);
  const int n = int(telling.size());
  const auto [low, high] = spread(deviations(telling, same, small_sample_widening(n, n - 1)));
  return {value, std::max(value + low, least), std::min(value + high, most)};
}

Interval prompt_interval(std::span<const Term> prompts, double most) { return mean_interval(prompts, 0, most); }

Interval share_interval(std::span<const Term> units) {
  const double share = ratio_of_totals(units);
  if (!std::isfinite(share)) return Interval::unknown();
  const std::vector<Term> telling = with_trials(units);
  if (telling.size() < 2) return Interval::of(share);
  const double trials = independent_trials(telling, share), successes = share * trials;
  const double low = share > 0 ? boost::math::ibeta_inv(successes, trials - successes + 1, kTail) : 0,
               high = share < 1 ? boost::math::ibeta_inv(successes + 1, trials - successes, 1 - kTail) : 1;
  return {share, low, high};
}

Interval repeated_share_interval(std::span<const Term> repeats) {
  constexpr double kLeast = 0.1, kMost = 0.9, kRightAngle = std::numbers::pi / 2;
  const double share = ratio_of_totals(repeats);
  if (!std::isfinite(share)) return Interval::unknown();
  const auto angle = [](double x) { return std::asin(std::sqrt(x)); };
  std::vector<double> angles;
  for (const Term& unit : with_trials(repeats)) angles.push_back(angle(unit.top / unit.bottom));
  const Interval alone = Interval::of(share);
  if (angles.size() < 2 || share < kLeast || share > kMost) return alone;
  const double error = std::sqrt(mean_variance(angles));
  if (!(error > 0)) return alone;
  const double half = students(double(angles.size()) - 1) * error;
  const auto bound = [&](double at) {
    const double side = std::sin(std::clamp(at, 0.0, kRightAngle));
    return side * side;
  };
  return {share, bound(angle(share) - half), bound(angle(share) + half)};
}

Resampled resampled(const Measurements& measured) {
  const double value = ratio_of_totals(measured.terms);
  if (!(value > 0) || !std::isfinite(value)) return {kUnknown};
  Resampled found{value};
  add_prompts(measured, 1, found);
  if (measured.repeats > 1)
    found.machine = std::sqrt(logarithm_variance(totals_of_repeats(measured))),
    found.machine_freedom = measured.repeats - 1;
  return found;
}

Resampled resampled_ratio(const Measurements& a, const Measurements& b) {
  const double below = ratio_of_totals(a.terms), value = ratio_of_totals(b.terms) / below;
  if (!(value > 0) || !(below > 0) || !std::isfinite(value)) return {kUnknown};
  const bool once = a.repeats < 2 || b.repeats < 2;
  if (a.prompts != b.prompts || (once && (a.prompts < 2 || a.repeats != b.repeats))) return {value};
  Resampled found{value};
  if (!once) set_machine(a, b, found);
  add_prompts(b, 1, found), add_prompts(a, -1, found);
  return found;
}

Interval interval_of(const Resampled& ratio) {
  if (!ratio.bounded()) return Interval::of(ratio.value);
  const auto [low, high] = spread(ratio.prompts);
  const Level machine{ratio.machine, ratio.machine_freedom};
  const auto half = [&](double deviation) {
    return half_width({std::max(0.0, deviation) / normal(), ratio.prompts_freedom}, machine);
  };
  return {ratio.value, ratio.value * std::exp(-half(-low)), ratio.value * std::exp(half(high))};
}

Interval paired_interval(const Measurements& measured) { return interval_of(resampled(measured)); }

double median(std::vector<double> values) {
  if (values.empty()) return kUnknown;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

void TimeCounts::add(double seconds, long times) {
  times_[int(std::floor(std::log(std::max(seconds, kUnit) / kUnit) / std::log(kStep)))] += times;
}

TimeCounts& TimeCounts::operator+=(const TimeCounts& other) {
  for (const auto& [bin, times] : other.times_) times_[bin] += times;
  return *this;
}

long TimeCounts::total() const {
  long all = 0;
  for (const auto& [bin, times] : times_) all += times;
  return all;
}

double TimeCounts::quantile(double share) const {
  const double wanted = share * double(total());
  long seen = 0;
  for (const auto& [bin, times] : times_) {
    seen += times;
    if (seen >= wanted) return std::sqrt(begin_of(bin) * begin_of(bin + 1));
  }
  return kUnknown;
}

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

// Averages and their uncertainty. An average is a ratio of totals; an interval is a bootstrap that resamples what
// varies: the prompts, and the alternations in which they were measured. This module must not know results, runs or
// engines.
#pragma once
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace foretoken {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Unknown where the denominator is 0.
inline double divide(double top, double bottom) { return bottom == 0 ? kUnknown : top / bottom; }

// An estimate with its 95 % interval. All NaN if nothing was measured; only the bounds are NaN for a single
// measurement, which has no spread.
struct Interval {
  double value, low, high;

  static Interval of(double value) { return {value, kUnknown, kUnknown}; }  // without bounds
  static Interval unknown() { return of(kUnknown); }
  bool known() const { return !std::isnan(value); }
  bool bounded() const { return !std::isnan(low) && !std::isnan(high); }
  double width() const { return high - low; }
  bool contains(double x) const { return low <= x && x <= high; }
  // -1, 0, 1: the interval lies below x, contains it or has no bounds, lies above it.
  int against(double x) const { return low > x ? 1 : high < x ? -1 : 0; }
  // An interval without bounds overlaps everything.
  bool overlaps(const Interval& other) const { return !(high < other.low) && !(other.high < low); }
};

// The contribution of one prompt, or one alternation, to the ratio (top / bottom) / (base_top / base_bottom) of totals.
// With the default base the ratio is top / bottom. A speedup's terms are tokens and seconds, with and without
// speculation: paired, so that a resampled prompt counts in both.
struct Term {
  double top = 0, bottom = 0;
  double base_top = 1, base_bottom = 1;

  Term& operator+=(const Term& other);
};

// The terms of every prompt in every alternation.
struct Measurements {
  int prompts = 0, repeats = 0;
  std::vector<Term> terms;  // [prompts, repeats]
  // Where the prompts' terms depend on each other: how the logarithm of the ratio deviates in resamples of the prompts,
  // [kResamples], instead of resampling the terms; empty: they do not.
  std::vector<double> again = {};

  Measurements(int prompts, int repeats) : prompts(prompts), repeats(repeats), terms(std::size_t(prompts) * repeats) {}
  Term& at(int prompt, int repeat) { return terms[std::size_t(prompt) * repeats + repeat]; }
  const Term& at(int prompt, int repeat) const { return terms[std::size_t(prompt) * repeats + repeat]; }
};

constexpr int kResamples = 2000;

// The index of the prompt, of n, that stands in the place of another in a resample.
int resampled_prompt(int resample, int prompt, int n);

// A ratio and how far it varies, in logarithms, from which intervals of one or of several ratios at once follow.
struct Resampled {
  double value;  // NaN: unknown
  // Over prompts: deviations of its resamples, [kResamples], as wide as those of independent draws; NaN: a denominator
  // was zero. Their degrees of freedom; 0: the prompts do not vary it.
  std::vector<double> prompts = {};
  double prompts_freedom = 0;
  // Over alternations: the standard error and its degrees of freedom; 0: they do not vary it.
  double machine = 0, machine_freedom = 0;

  bool bounded() const { return prompts_freedom > 0 || machine_freedom > 0; }
};

// The ratio of totals; NaN where a denominator is zero.
double ratio_of_totals(std::span<const Term> terms);

// A mean between `least` and `most`, as a ratio of totals: the units of the terms vary. 2000 resamples of the terms;
// those with a zero denominator are left out. With fewer than two terms the bounds are unknown.
Interval mean_interval(std::span<const Term> units, double least, double most);
// A share, or a count per round, between 0 and `most`: prompts vary.
Interval prompt_interval(std::span<const Term> prompts, double most);

// A share of trials that come in units, such as the tokens of a document: of each unit its successes (top) among its
// trials (bottom). Trials of one unit depend on each other, so the interval is that of Clopper and Pearson for the
// number of independent trials that would vary as much between units as these do, and at most for all trials (Korn and
// Graubard 1998, Survey Methodology 24, 193). Where every trial succeeds, or none, nothing varies, and it is the
// interval for all trials. With fewer than two units the bounds are unknown.
Interval share_interval(std::span<const Term> units);

// A share of few alternations of one experiment, each of which is a measurement of its own: its trials (bottom) share
// arrivals and the machine, so their number says nothing about the spread. Student's interval of the arcsines of the
// square roots of the alternations' shares, whose variance hardly depends on the share (Bartlett 1936, Supplement to
// the Journal of the Royal Statistical Society 3, 68). The bounds are unknown with fewer than two alternations, where
// all shares are equal, and for shares below .1 or above .9: there most alternations have none or all, and no interval
// covers 95 % (tests/nightly/experiments/report/load_coverage_test.cpp).
Interval repeated_share_interval(std::span<const Term> repeats);

// A rate or a speedup, positive: prompts vary, and so does the machine from one alternation to the next. The prompts
// are resampled 2000 times; of alternations, of which three have too few resamples, the standard error is taken. A
// level of only one prompt or one alternation is left out; if both levels have only one, the bounds are unknown.
//
// Few units make a bootstrap too narrow (by sqrt((n - 1) / n), and by normal instead of t quantiles), so the deviations
// of a level of n units are widened by t(n - 1) / z * sqrt(n / (n - 1)): Hesterberg 2015, arXiv 1411.5279, section 4.
// How the half-widths of both levels add up is said at interval_of().
// Deterministic: the draws are Philox counters, so the same results always give the same interval, and measurements of
// the same number of prompts resample the same ones.
Resampled resampled(const Measurements& measured);
// The ratio of b over that of a, of the same prompts, which are resampled in both together. The alternations of each
// vary alone, with the degrees of freedom of Welch (1947). Unknown bounds where one side has one alternation and the
// other more.
Resampled resampled_ratio(const Measurements& a, const Measurements& b);

// Of two levels, each with a standard error s and degrees of freedom f, the half-width is the geometric mean of two:
// sqrt(sum (t(f) s)^2), in which each level keeps its own quantile (Howe 1974; Zou and Donner 2008), and that of Welch
// (1947), t(F) sqrt(sum s^2) with F = (sum s^2)^2 / sum (s^4 / f). With three alternations the first covers up to 98 %,
// the second down to 92 %, the mean 94 to 97 % for any share of the two levels and any number of prompts
// (tests/nightly/experiments/report/coverage_test.cpp). Above and below the value the prompts' half-widths are those of
// their resamples, which need not be equal.
Interval interval_of(const Resampled& ratio);
// Intervals that hold all at once in 95 of 100 cases: each is as much wider than its own as the most extreme of all
// ratios' deviations requires, measured by their half-widths (Westfall and Young 1993). The ratios share the draws of
// their prompts; each has draws of its own, from Student's distribution, for its alternations. Ratios without bounds do
// not count.
std::vector<Interval> simultaneous_intervals(std::span<const Resampled> ratios);

Interval paired_interval(const Measurements& measured);

// The widening above, t(freedom) / z * sqrt(n / (n - 1)); 1 for n < 2.
double small_sample_widening(int n, double freedom);

// The value below which this share of the sorted values lies, between the two nearest ones as numpy does by default;
// NaN if there are none.
double quantile(std::span<const double> sorted, double share);

// The middle value; the mean of the two middle ones if their number is even; NaN if there are none.
double median(std::vector<double> values);

constexpr double kTail = 0.025;  // of an interval, on each side

double normal();                  // the quantile of the normal distribution that bounds the middle 95 %
double students(double freedom);  // that of Student's; of freedoms an eighth apart below 64

double mean(const std::vector<double>& values);  // of at least one
// The variance of the mean of values, of at least two.
double mean_variance(const std::vector<double>& values);

// The middle 95 % of the deviations; NaN deviations had a zero denominator and are left out.
std::pair<double, double> spread(std::vector<double> deviations);

// One level: its standard error and degrees of freedom; 0: it does not vary the ratio.
struct Level {
  double error = 0, freedom = 0;
};

// Of an interval of two levels, as interval_of() says.
double half_width(const Level& a, const Level& b);

class TimeCounts {
 public:
  TimeCounts() = default;
  explicit TimeCounts(std::map<int, long> by_bin) : times_(std::move(by_bin)) {}
  // Seconds; what is not above 0 counts as a microsecond.
  void add(double seconds, long times = 1);
  TimeCounts& operator+=(const TimeCounts& other);
  long total() const;
  // The time below which this share of the times lies, within 1 %; NaN where there are none.
  double quantile(double share) const;

  const std::map<int, long>& by_bin() const { return times_; }

 private:
  std::map<int, long> times_;  // bin b begins at 1.01^b microseconds
};

}  // namespace foretoken

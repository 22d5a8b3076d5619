// What is printed as 95 % covers between 93 and 97 of 100 truths, on noise that was fitted to the committed results.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/experiments/report/committed_results.h"
#include "tests/experiments/report/fitted_noise.h"

namespace foretoken::test {
namespace {

constexpr double kLeast = 0.93, kMost = 0.97;
constexpr double kNoMost = std::numeric_limits<double>::infinity();

const std::vector<FittedNoise>& lines_of(const std::string& name) {
  static std::map<std::string, std::vector<FittedNoise>> known;
  std::vector<FittedNoise>& found = known[name];
  if (found.empty())
    for (const nlohmann::json& line : committed_results("cpu/" + name))
      if (line.contains("repeats")) found.emplace_back(line);
  return found;
}

std::vector<FittedNoise> all_lines() {
  std::vector<FittedNoise> all = lines_of("lengths");
  all.insert(all.end(), lines_of("quickstart").begin(), lines_of("quickstart").end());
  return all;
}

std::vector<int> drawn(int count, int first, int beyond, std::mt19937& random) {
  std::uniform_int_distribution<int> any(first, beyond - 1);
  std::vector<int> found;
  for (int i = 0; i < count; ++i) found.push_back(any(random));
  return found;
}

// Of speedups, or of tokens per second, over all committed lines in turn.
double coverage(int prompts, int repeats, bool speedup, int experiments) {
  const std::vector<FittedNoise> lines = all_lines();
  std::mt19937 random(20261126);
  int held = 0;
  for (int e = 0; e < experiments; ++e) {
    const FittedNoise& line = lines[std::size_t(e) % lines.size()];
    const auto measured = line.measure(drawn(prompts, 0, line.prompts(), random), repeats, speedup, random);
    held += paired_interval(measured).contains(line.truth(speedup));
  }
  return double(held) / experiments;
}

// 1840 experiments: the standard error of a coverage of .95 is .005.
TEST(Coverage, OfSpeedupsAndRates) {
  for (const bool speedup : {true, false})
    for (const auto& [prompts, repeats] : {std::pair(24, 3), std::pair(60, 3), std::pair(24, 5)}) {
      const double covered = coverage(prompts, repeats, speedup, 1840);
      EXPECT_TRUE(covered >= kLeast && covered <= kMost)
          << covered << ": " << prompts << " prompts, " << repeats << " alternations, speedup " << speedup;
    }
}

// The committed workload of sixty prompts has ten of each category, one category after another.
constexpr int kOfCategory = 10;

TEST(Coverage, OfSpeedupsOfCategories) {
  const std::vector<FittedNoise>& lines = lines_of("lengths");
  std::mt19937 random(1);
  int held = 0, count = 0;
  for (int e = 0; e < 60; ++e)
    for (const FittedNoise& line : lines)
      for (int first = 0; first < line.prompts(); first += kOfCategory) {
        std::vector<Term> category;
        for (int p = first; p < first + kOfCategory; ++p) category.push_back(line.expected(p, true));
        const auto measured = line.measure(drawn(kOfCategory, first, first + kOfCategory, random), 3, true, random);
        held += paired_interval(measured).contains(ratio_of_totals(category)), ++count;
      }
  const double covered = double(held) / count;
  EXPECT_TRUE(covered >= kLeast && covered <= kMost) << covered;
}

struct Share {
  const char* name;
  double Served::*top, Served::*bottom;
  double most;
};
constexpr Share kShares[] = {{"alpha", &Served::accepted, &Served::tested, 1},
                             {"accept_rate", &Served::accepted, &Served::drafted, 1},
                             {"tau", &Served::tokens, &Served::rounds, kNoMost}};

// Of prompts that are drawn from [first, beyond) of a line.
bool covers(const FittedNoise& line, const Share& share, int prompts, int first, int beyond, std::mt19937& random) {
  std::vector<Term> all, terms;
  for (int p = first; p < beyond; ++p) all.push_back(line.counts(p, share.top, share.bottom));
  for (const int p : drawn(prompts, first, beyond, random)) terms.push_back(line.counts(p, share.top, share.bottom));
  return prompt_interval(terms, share.most).contains(ratio_of_totals(all));
}

TEST(Coverage, OfAcceptance) {
  const std::vector<FittedNoise> lines = all_lines();
  for (const Share& share : kShares)
    for (const int prompts : {24, 60}) {
      std::mt19937 random(2);
      int held = 0, count = 0;
      for (int e = 0; e < 40; ++e)
        for (const FittedNoise& line : lines) held += covers(line, share, prompts, 0, line.prompts(), random), ++count;
      const double covered = double(held) / count;
      EXPECT_TRUE(covered >= kLeast && covered <= kMost) << covered << ": " << share.name << " of " << prompts;
    }
}

TEST(Coverage, OfAcceptanceOfCategories) {
  for (const Share& share : kShares) {
    std::mt19937 random(3);
    int held = 0, count = 0;
    for (int e = 0; e < 30; ++e)
      for (const FittedNoise& line : lines_of("lengths"))
        for (int first = 0; first < line.prompts(); first += kOfCategory)
          held += covers(line, share, kOfCategory, first, first + kOfCategory, random), ++count;
    const double covered = double(held) / count;
    EXPECT_TRUE(covered >= kLeast && covered <= kMost) << covered << ": " << share.name;
  }
}

// Eight runs of the same prompts in three alternations each: the share of experiments in which every interval covers.
double family_coverage(bool compared, int prompts, int experiments) {
  const std::vector<FittedNoise>& lines = lines_of("lengths");
  std::mt19937 random(4);
  int held = 0;
  for (int e = 0; e < experiments; ++e) {
    std::vector<std::size_t> chosen(lines.size());
    std::iota(chosen.begin(), chosen.end(), 0);
    std::ranges::shuffle(chosen, random);
    const std::vector<int> same = drawn(prompts, 0, lines[0].prompts(), random);
    std::vector<Resampled> ratios;
    std::vector<double> truths;
    for (int k = 0; k < 8; ++k) {
      const FittedNoise& line = lines[chosen[std::size_t(k)]];
      const auto one = [&] { return line.measure(same, 3, true, random); };
      ratios.push_back(compared ? resampled_ratio(one(), one()) : resampled(one()));
      truths.push_back(compared ? 1 : line.truth(true));
    }
    bool all = true;
    const std::vector<Interval> intervals = simultaneous_intervals(ratios);
    for (std::size_t k = 0; k < truths.size(); ++k) all &= intervals[k].contains(truths[k]);
    held += all;
  }
  return double(held) / experiments;
}

// 600 experiments: the standard error is .009.
TEST(Coverage, OfFamiliesThatHoldTogether) {
  for (const bool compared : {false, true}) {
    const double covered = family_coverage(compared, 24, 600);
    EXPECT_TRUE(covered >= kLeast && covered <= kMost) << covered << ", compared " << compared;
  }
}

// What the intervals are not printed for: they would promise too much.
TEST(Coverage, OfFewUnitsIsLess) {
  std::mt19937 random(5);
  int held = 0, count = 0;
  for (int e = 0; e < 40; ++e)
    for (const FittedNoise& line : lines_of("lengths"))
      held += covers(line, kShares[0], 4, 0, kOfCategory, random), ++count;
  EXPECT_LT(double(held) / count, kLeast) << "four prompts of a category";
}

}  // namespace
}  // namespace foretoken::test

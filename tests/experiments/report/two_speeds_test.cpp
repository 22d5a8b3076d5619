// How often a machine of one speed is called one of two, and one of two is found, on the noise of committed results;
// and what is told of it.
#include "experiments/report/two_speeds.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/report/report.h"
#include "tests/experiments/report/committed_results.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/source.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Logs = std::vector<double>;

double mean(const Logs& values) { return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size()); }

double deviation(const Logs& values) {
  const double centre = mean(values);
  double squares = 0;
  for (const double x : values) squares += (x - centre) * (x - centre);
  return std::sqrt(squares / double(values.size() - 1));
}

// The noise of a line's plain decoding, of one request at a time: requests are blocks of consecutive steps.
// Alternations vary by `machine`, requests around them by `request`, neighbours alike by `alike` (the autocorrelation).
struct Noise {
  int alternations = 0, blocks = 0;
  double machine = 0, request = 0, alike = 0;

  explicit Noise(const json& line) {
    std::vector<Logs> all;
    for (const json& repeat : line.at("repeats")) {
      all.emplace_back();
      for (const json& r : repeat.at("baseline").at("requests"))
        all.back().push_back(std::log(r.at("share_seconds").get<double>() / r.at("tokens").get<double>()));
    }
    alternations = int(all.size()), blocks = int(all[0].size());
    Logs levels, own;
    for (const Logs& logs : all) levels.push_back(mean(logs));
    machine = deviation(levels);
    double squares = 0, neighbours = 0;
    for (std::size_t k = 0; k < all.size(); ++k)
      for (std::size_t i = 0; i < all[k].size(); ++i) {
        double of_prompt = 0;  // what its prompt takes in every alternation
        for (std::size_t j = 0; j < all.size(); ++j) of_prompt += (all[j][i] - levels[j]) / double(all.size());
        own.push_back((all[k][i] - levels[k] - of_prompt) * std::sqrt(double(alternations) / (alternations - 1)));
        squares += own.back() * own.back();
        if (i > 0) neighbours += own[own.size() - 1] * own[own.size() - 2];
      }
    request = std::sqrt(squares / double(own.size()));
    alike = std::clamp(neighbours / squares, 0.0, 0.9);
  }

  // A machine of one speed.
  Logs one_speed(std::mt19937& random) const {
    std::normal_distribution<double> normal(0, 1);
    Logs found;
    for (int k = 0; k < alternations; ++k) {
      const double level = machine * normal(random);
      double own = request * normal(random);
      for (int i = 0; i < blocks; ++i) {
        found.push_back(level + own);
        own = alike * own + request * std::sqrt(1 - alike * alike) * normal(random);
      }
    }
    return found;
  }
};

std::vector<Noise> committed(const std::vector<std::string>& files) {
  std::vector<Noise> found;
  for (const std::string& file : files)
    for (const json& line : test::committed_results(file))
      if (line.contains("repeats") && line["repeats"].size() > 1 && line["run"]["engine"]["batch"] == 1)
        found.emplace_back(line);
  return found;
}

const std::vector<std::string> kOnGpus = {"h100/inflated", "h100/trees_greedy_inflated", "h200/heads_inflated"};

double share_found(int experiments, const std::function<Logs(int)>& measured) {
  int found = 0;
  for (int e = 0; e < experiments; ++e) found += two_speeds(measured(e)).has_value();
  return double(found) / experiments;
}

// On shared CPUs and on GPUs, with the noise of 75 and of 26 committed measurements.
TEST(TwoSpeeds, AreHardlyEverFoundOfAMachineThatHasOne) {
  std::mt19937 random(20261126);
  for (const auto& files : {std::vector<std::string>{"cpu/lengths", "cpu/quickstart", "cpu/formats"}, kOnGpus}) {
    const std::vector<Noise> lines = committed(files);
    ASSERT_GE(lines.size(), 20u);
    const double alarms =
        share_found(4000, [&](int e) { return lines[std::size_t(e) % lines.size()].one_speed(random); });
    EXPECT_LT(alarms, 0.01) << files[0];
  }
}

// The flattest distribution with one mode, wide enough to matter.
TEST(TwoSpeeds, AreFoundInOneOfAHundredSamplesOfUniformDraws) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0, 0.5);
  for (const int n : {24, 36, 72, 192}) {
    const double alarms = share_found(2000, [&](int) {
      Logs logs(std::size_t(n), 0);
      for (double& x : logs) x = uniform(random);
      return logs;
    });
    EXPECT_LT(alarms, 0.02) << n;
    EXPECT_GT(alarms, 0) << n << ": the bound is too high";
  }
}

// Three alternations of a machine that changes between two speeds 10 % apart, within them or between them.
Logs two(bool within, int blocks, double noise, std::mt19937& random) {
  std::normal_distribution<double> normal(0, noise);
  std::bernoulli_distribution changes(0.2), first(0.5);
  Logs found;
  for (int k = 0; k < 3; ++k) {
    bool slow = within ? first(random) : k == 1;
    for (int i = 0; i < blocks; ++i) {
      slow ^= within && changes(random);
      found.push_back((slow ? std::log(1.1) : 0) + normal(random));
    }
  }
  return found;
}

TEST(TwoSpeeds, AreFoundWhereTheyAreTenPercentApart) {
  std::mt19937 random(2);
  for (const bool within : {true, false}) {
    const auto power = [&](int blocks, double noise) {
      return share_found(1000, [&](int) { return two(within, blocks, noise, random); });
    };
    EXPECT_GT(power(8, 0.01), 0.95) << within << ": the noise of GPUs is half of that";
    EXPECT_GT(power(16, 0.015), 0.95) << within;
    EXPECT_GT(power(32, 0.02), 0.85) << within;
    EXPECT_LT(power(32, 0.05), 0.05) << within << ": noise hides them";
  }
  for (const Noise& line : committed(kOnGpus)) {
    EXPECT_GT(share_found(100,
                          [&](int) {
                            Logs logs = line.one_speed(random), more = line.one_speed(random);
                            for (double& x : more) x += std::log(1.1);
                            logs.insert(logs.end(), more.begin(), more.end());
                            return logs;
                          }),
              0.9);
  }
}

TEST(TwoSpeeds, AreSaidWithRatioAndShare) {
  Logs logs(40, 0);
  for (int i = 0; i < 10; ++i) logs[std::size_t(4 * i)] = std::log(1.25);
  const auto found = two_speeds(logs);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->ratio, 1.25, 1e-9);
  EXPECT_NEAR(found->slower, 0.25, 1e-9);
  EXPECT_FALSE(two_speeds(std::span(logs).first(23))) << "too few say anything";
  EXPECT_FALSE(two_speeds(Logs(40, 1.0)));
  EXPECT_FALSE(two_speeds({}));
  for (double& x : logs) x *= 0.2;  // 4.6 %
  EXPECT_FALSE(two_speeds(logs)) << "less than matters";
  Logs few(40, 0);
  few[0] = few[1] = few[2] = 1;
  EXPECT_FALSE(two_speeds(few)) << "outliers are no speed";
}

BlockTimes blocks(int rows, double slower, double per_token = 0) {
  BlockTimes found{.rows = rows, .steps = 8, .seconds = {}, .context = {}};
  for (int i = 0; i < 16; ++i) {
    const double context = i % 2 ? 4000 : 100, noise = 1 + 0.002 * (i % 5);
    found.context.push_back(context);
    found.seconds.push_back(slower * noise * std::exp(per_token * context));
  }
  return found;
}

std::vector<SideSpeeds> speeds(const std::vector<BlockTimes>& plain, const std::vector<BlockTimes>& fast) {
  std::vector<Alternation> repeats(plain.size());
  for (std::size_t k = 0; k < plain.size(); ++k) {
    repeats[k].baseline.step_blocks = plain[k];
    repeats[k].speculative.step_blocks = fast[k];
  }
  return two_speeds_of(repeats);
}

// Long and short prompts take turns: their steps take different times on a machine of one speed.
TEST(TwoSpeeds, OfASideAreTakenFromAllAlternationsAtEqualContexts) {
  const BlockTimes one = blocks(4, 1, 1e-4), slow = blocks(4, 1.2, 1e-4), other_rows = blocks(5, 1.2, 1e-4);
  EXPECT_TRUE(speeds({one, one, one}, {one, one, one}).empty());
  const std::vector<SideSpeeds> found = speeds({one, one, one}, {one, slow, one});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].side, "speculative");
  EXPECT_NEAR(found[0].ratio, 1.2, 0.01);
  EXPECT_NEAR(found[0].slower, 1 / 3.0, 0.01);
  BlockTimes late = one;  // slow while contexts are long, as it happens
  for (int i = 0; i < 16; ++i) {
    const bool slow = i / 4 % 2 == 1;
    late.context[std::size_t(i)] = (slow ? 200 : 150) + 40 * (i % 4);
    late.seconds[std::size_t(i)] = (slow ? 1.5 : 1) * (1 + 0.002 * (i % 5));
  }
  const std::vector<SideSpeeds> changing = speeds({late, late, late}, {one, one, one});
  ASSERT_EQ(changing.size(), 1u);
  EXPECT_NEAR(changing[0].ratio, 1.5, 0.01);
  EXPECT_TRUE(speeds({one, one, one}, {one, other_rows, one}).empty()) << "steps that do not do the same";
  EXPECT_TRUE(two_speeds_of({Alternation{}}).empty()) << "without blocks";
}

TEST(TwoSpeeds, AreToldInNotesAndBelowTheTable) {
  const auto holds = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  json a = test::swept_line("ngram", 2, 0, 1, 1.5), b = test::swept_line("ngram", 4, 0, 1, 1.5);
  const auto shown = [&] { return show({a, b}, {"markdown", {"main"}, 118}); };
  EXPECT_FALSE(holds(shown(), "two speeds,") || holds(shown(), "Two speeds in"));
  a["two_speeds"] = {{{"side", "baseline"}, {"ratio", 1.08}, {"slower", 0.5}},
                     {{"side", "speculative"}, {"ratio", 1.124}, {"slower", 0.304}}};
  EXPECT_TRUE(holds(shown(), "exact ✓, two speeds")) << shown();
  EXPECT_TRUE(holds(shown(), "Two speeds in 1 run: 30 % of the steps took 1.12 times as long")) << shown();
  b["two_speeds"] = {{{"side", "baseline"}, {"ratio", 1.3}, {"slower", 0.2}}};
  EXPECT_TRUE(holds(shown(), "in 2 runs: where they were furthest apart, 20 % of the steps took 1.30 times as long"))
      << shown();
  const json cells = json::parse(show({a}, {"json", {}, 118}))["cells"];
  EXPECT_EQ(cells[0]["figures"]["two_speeds"], json({{"ratio", 1.124}, {"slower", 0.304}}));
}

}  // namespace
}  // namespace foretoken

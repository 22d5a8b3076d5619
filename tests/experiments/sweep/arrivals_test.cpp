// Open loops: the law and the names of arrivals, what is idle and what is stopped, and runs of the demo models.
#include "experiments/sweep/arrivals.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "experiments/report/summary.h"
#include "experiments/sweep/measure_recorder.h"
#include "tests/experiments/report/made_results.h"
#include "tests/experiments/sweep/demo_runs.h"

namespace foretoken::test {
namespace {

using std::chrono::milliseconds;

std::vector<double> gaps_of(const std::vector<double>& times) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  return gaps;
}

// The largest distance of the gaps' distribution from the exponential one, times the root of their number (Kolmogorov):
// above 1.63 in one of a hundred cases.
TEST(Arrivals, GapsAreExponentialAndIndependent) {
  constexpr double kRate = 4;
  for (const std::uint64_t seed : {1, 2, 3}) {
    const std::vector<double> gaps = gaps_of(poisson_arrivals(kRate, 20001, seed, 0));
    std::vector<double> sorted = gaps;
    std::ranges::sort(sorted);
    double distance = 0, products = 0;
    const double n = double(gaps.size());
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const double law = 1 - std::exp(-kRate * sorted[i]);
      distance = std::max({distance, law - double(i) / n, double(i + 1) / n - law});
    }
    EXPECT_LT(distance * std::sqrt(n), 1.63) << seed;
    for (std::size_t i = 1; i < gaps.size(); ++i) products += (kRate * gaps[i] - 1) * (kRate * gaps[i - 1] - 1);
    EXPECT_LT(std::abs(products / n), 3 / std::sqrt(n)) << "neighbours are independent: the product's variance is 1";
  }
}

TEST(Arrivals, AreDrawnByTheirNames) {
  const std::vector<double> times = poisson_arrivals(2, 50, 7, 1), few = poisson_arrivals(2, 10, 7, 1);
  EXPECT_EQ(times[0], 0);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), times.begin())) << "whatever follows";
  const std::vector<double> faster = poisson_arrivals(8, 50, 7, 1);
  for (std::size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(faster[i], times[i] / 4, 1e-9);
  EXPECT_NE(poisson_arrivals(2, 50, 8, 1), times);
  EXPECT_NE(poisson_arrivals(2, 50, 7, 2), times);
  EXPECT_NE(poisson_arrivals(2, 50, 7 + (1ull << 32), 1), times) << "all bits of the seed count";
}

constexpr double kDay = 10;
const std::vector<ArrivalRate::Piece> kDayAndNight{{4, 2}, {3, 20}, {2, 5}, {1, 0}};

// Requests that are expected until then, of the rates above.
double expected_until(double time) {
  const double days = std::floor(time / kDay);
  double rest = time - days * kDay, all = 0, found = 0;
  for (const auto& [seconds, rate] : kDayAndNight) {
    found += std::clamp(rest, 0.0, seconds) * rate, all += seconds * rate;
    rest -= seconds;
  }
  return days * all + found;
}

// Where the rate changes, the numbers that are expected between arrivals are the exponential ones of one request per
// second, so they are exactly those of the constant rate 1.
TEST(Arrivals, ARateThatChangesStretchesTheGaps) {
  const std::vector<double> times = poisson_arrivals(ArrivalRate(kDayAndNight), 5000, 3, 1),
                            unit = poisson_arrivals(1, 5000, 3, 1);
  EXPECT_EQ(times[0], 0);
  EXPECT_TRUE(std::ranges::is_sorted(times));
  for (std::size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(expected_until(times[i]), unit[i], 1e-7);
}

// Over many days the number in each piece is Poisson's: its mean is its variance.
TEST(Arrivals, EachPieceHasItsOwnMean) {
  constexpr int kDays = 400;
  for (const std::uint64_t seed : {1, 2}) {
    const std::vector<double> times = poisson_arrivals(ArrivalRate(kDayAndNight), 40000, seed, 0);
    ASSERT_GT(times.back(), kDay * kDays);
    std::vector<double> counts(kDayAndNight.size());
    for (const double time : times) {
      if (time >= kDay * kDays) break;
      double phase = time - kDay * std::floor(time / kDay);
      std::size_t piece = 0;
      while (piece + 1 < counts.size() && phase >= kDayAndNight[piece].seconds) phase -= kDayAndNight[piece++].seconds;
      ++counts[piece];
    }
    for (std::size_t piece = 0; piece < counts.size(); ++piece) {
      const double mean = kDays * kDayAndNight[piece].seconds * kDayAndNight[piece].rate;
      EXPECT_LE(std::abs(counts[piece] - mean), 3.3 * std::sqrt(mean)) << "piece " << piece << ", seed " << seed;
    }
  }
}

TEST(Arrivals, RatesThatAreAllOneAreThatRate) {
  EXPECT_EQ(poisson_arrivals(ArrivalRate({{0.7, 3}, {5, 3}}), 500, 7, 1), poisson_arrivals(3, 500, 7, 1))
      << "to the last bit";
}

TEST(Arrivals, AClosedLoopReplacesWhatEnds) {
  const Loop loop = 2;
  EXPECT_FALSE(loop.open());
  EXPECT_TRUE(loop.due(1, 0, {}) && loop.due(4, 3, {}));
  EXPECT_FALSE(loop.due(2, 0, std::chrono::hours(1)));
}

TEST(Arrivals, AnOpenLoopWaitsForNothing) {
  const Loop loop(2, {0, 0.5, 0.5});
  EXPECT_TRUE(loop.open() && loop.due(0, 0, {}));
  EXPECT_FALSE(loop.due(1, 1, milliseconds(499)));
  EXPECT_TRUE(loop.due(1, 0, milliseconds(500)) && loop.due(2, 0, milliseconds(500)));
}

TEST(Arrivals, ASleepCanBeStopped) {
  const auto start = Loop::Clock::now();
  EXPECT_THROW(sleep_until(start + std::chrono::hours(1), [] { throw Error("stop"); }), Error);
  EXPECT_LT(Loop::Clock::now() - start, std::chrono::seconds(10));
  int calls = 0;
  sleep_until(start, [&] { ++calls; });
  EXPECT_EQ(calls, 0) << "that time is over";
  const auto then = Loop::Clock::now() + milliseconds(120);
  sleep_until(then, [&] { ++calls; });
  EXPECT_GE(Loop::Clock::now(), then);
  EXPECT_GE(calls, 3);
}

TEST(Stops, SleepingIsNoneButOversleepingIs) {
  Stops stops;
  for (int i = 0; i < 20; ++i) stops.step(0.01, 0.02), stops.woke(0.0001);
  EXPECT_EQ(stops.seconds(), 0);
  stops.woke(0.4);
  EXPECT_EQ(stops.seconds(), 0) << "a busy machine wakes late";
  stops.woke(3);
  EXPECT_EQ(stops.seconds(), 3);
  stops.step(2.01, 0.02);
  EXPECT_NEAR(stops.seconds(), 5, 0.001);
}

json with_rate(double rate, const json& more = json::object()) {
  json changes = {{"workload", {{"rate", rate}}}, {"measure", {{"repeats", 2}}}};
  changes.update(more, true);
  return changes;
}

std::vector<Loop::Clock::duration> arrivals_of(const json& run, int alternation) {
  const Loop loop = loop_of(run, 12, alternation);
  std::vector<Loop::Clock::duration> times;
  for (std::size_t i = 0; loop.open() && i < 12; ++i) times.push_back(loop.arrival(i));
  return times;
}

TEST_F(Runs, EveryAlternativeMeetsTheSameArrivals) {
  const auto arrivals = [&](const json& changes, int alternation) {
    return arrivals_of(run_of(changes).document, alternation);
  };
  const auto first = arrivals(with_rate(4), 0);
  ASSERT_EQ(first.size(), 12u);
  for (const json& other : std::vector<json>{{{"drafter", {{"name", "ngram"}, {"model", nullptr}}}},
                                             {{"policy", {{"length", 7}}}},
                                             {{"sampling", {{"temperature", 1}}}},
                                             {{"engine", {{"batch", 1}}}}})
    EXPECT_EQ(arrivals(with_rate(4, other), 0), first) << other;
  EXPECT_NE(arrivals(with_rate(4), 1), first) << "alternations vary";
  EXPECT_NE(arrivals(with_rate(4, {{"sampling", {{"seed", 2}}}}), 0), first);
  EXPECT_TRUE(arrivals(json::object(), 0).empty());
}

TEST_F(Runs, EveryAlternativeMeetsTheSameLoad) {
  const auto arrivals = [&](const char* rates, const json& more, int alternation = 0) {
    json changes = {{"workload", {{"rates", json::parse(rates)}}}};
    changes.update(more, true);
    return arrivals_of(run_of(changes).document, alternation);
  };
  constexpr auto kRates = "[[1,2],[1,20]]";
  const auto first = arrivals(kRates, json::object());
  ASSERT_EQ(first.size(), 12u);
  for (const json& other : std::vector<json>{{{"policy", {{"name", "goodput"}, {"length", nullptr}}}},
                                             {{"policy", {{"length", 7}}}},
                                             {{"engine", {{"batch", 1}}}}})
    EXPECT_EQ(arrivals(kRates, other), first) << other;
  EXPECT_NE(arrivals(kRates, json::object(), 1), first) << "alternations vary";
  EXPECT_NE(arrivals(kRates, {{"sampling", {{"seed", 2}}}}), first);
  EXPECT_NE(arrivals("[[1,20],[1,2]]", json::object()), first) << "it begins elsewhere";
  EXPECT_EQ(arrivals("[[1,4],[2,4]]", json::object()), arrivals_of(run_of(with_rate(4)).document, 0));
}

void expect_open_loop(const json& m) {
  double shares = 0;
  for (const json& r : m["requests"]) {
    shares += r["share_seconds"].get<double>();
    EXPECT_GE(r["queued"], 0);
    EXPECT_GT(r["ttft"], r["queued"]) << "times count from the arrival";
    EXPECT_LE(r["arrival"].get<double>() + r["seconds"].get<double>(), m["seconds"].get<double>() + 0.1);
  }
  const double seconds = m["seconds"];
  EXPECT_NEAR(shares + m["idle_seconds"].get<double>(), seconds, 0.01 * seconds);
}

// Four requests on average in two milliseconds, then none for a second, and so on.
TEST_F(Runs, ALoadThatRisesAndFallsIsMet) {
  const json line = measured(
      {{"workload", {{"rates", {{0.002, 2000}, {1, 0}}}, {"max_new_tokens", 3}}}, {"measure", {{"repeats", 1}}}});
  const std::vector<Loop::Clock::duration> times = arrivals_of(line["run"], 0);
  for (const char* side : {"baseline", "speculative"}) {
    const json& m = line["repeats"][0][side];
    ASSERT_EQ(m["requests"].size(), 12u);
    expect_open_loop(m);
    for (std::size_t i = 0; i < 12; ++i) {
      EXPECT_NEAR(m["requests"][i]["arrival"], seconds(times[i]), 1e-5);
      const double phase = std::fmod(m["requests"][i]["arrival"].get<double>(), 1.002);
      EXPECT_LE(phase, 0.0021);
    }
    EXPECT_GT(m["idle_seconds"], 0.1 * m["seconds"].get<double>()) << "it sleeps in the pauses";
  }
  const Summary s = summarize(line);
  ASSERT_EQ(s.error, "");
  EXPECT_NEAR(s.load->rate, 4 / 1.002, 1e-9);
  EXPECT_NEAR(s.load->period, 1.002, 1e-9);
  EXPECT_NEAR(s.load->periods, seconds(times.back()) / 1.002, 1e-4);
  EXPECT_FALSE(s.speedup.known());
}

// Twelve short requests, at a sixth of the rate at which they can be served. Were sleeping a stop, nothing could be
// measured.
TEST_F(Runs, AnOpenLoopSleepsWhileNothingRuns) {
  json shorter = {{"workload", {{"max_new_tokens", 3}}}};
  const double closed = measured(shorter)["repeats"][1]["baseline"]["seconds"];
  shorter["workload"].update({{"ttft_limit", 60}, {"tpot_limit", 60}});
  const json line = measured(with_rate(std::max(1.0, 12 / closed / 6), shorter));
  for (const json& repeat : line["repeats"])
    for (const char* side : {"baseline", "speculative"}) {
      const json& m = repeat[side];
      ASSERT_EQ(m["requests"].size(), 12u);
      expect_open_loop(m);
      EXPECT_GT(m["idle_seconds"], 0.1 * m["seconds"].get<double>());
      EXPECT_LT(m["stopped_seconds"], 0.02 * m["seconds"].get<double>());
      EXPECT_GE(m["seconds"], m["requests"].back()["arrival"]);
      for (std::size_t i = 0; i < 12; ++i)
        EXPECT_EQ(m["requests"][i]["arrival"], repeat["baseline"]["requests"][i]["arrival"]);
    }
  EXPECT_NE(line["repeats"][0]["baseline"]["requests"][1]["arrival"],
            line["repeats"][1]["baseline"]["requests"][1]["arrival"]);
  EXPECT_EQ(line["agreement"], json({{"compared", true}, {"compared_texts", 24}, {"differing_texts", 0}}));
  EXPECT_EQ(line["alternations"]["compared"], false) << "times decide which requests share a step";
  const Summary s = summarize(line);
  ASSERT_EQ(s.error, "");
  ASSERT_TRUE(s.load);
  EXPECT_FALSE(s.speedup.known());
  EXPECT_EQ(s.load->speculative.within.value, 1);
  EXPECT_NEAR(s.load->baseline.goodput.value, s.load->baseline.served, 1e-9);
  EXPECT_LT(s.load->speculative.busy, 0.9);
}

// All arrive at once, as it were: it ends, nothing is idle, and the line says so.
TEST_F(Runs, AnOverloadEndsAndSaysSo) {
  const json line = measured(with_rate(10000));
  for (const char* side : {"baseline", "speculative"}) {
    const json& m = line["repeats"][0][side];
    ASSERT_EQ(m["requests"].size(), 12u);
    expect_open_loop(m);
    EXPECT_LT(m["idle_seconds"], 0.1 * m["seconds"].get<double>());
    EXPECT_GT(m["requests"].back()["queued"].get<double>(), 0.3 * m["seconds"].get<double>());
  }
  const Summary s = summarize(line);
  for (const LoadFigures& side : {s.load->speculative, s.load->baseline}) {
    EXPECT_TRUE(side.overloaded);
    EXPECT_GT(side.waiting, 5);
    EXPECT_LT(side.capacity, 10000);
    EXPECT_NEAR(side.capacity, side.served, 0.5 * side.served) << "all places were taken most of the time";
  }
}

TEST_F(Runs, ClosedLoopsKeepTheirForm) {
  const json line = measured({{"measure", {{"repeats", 1}}}});
  EXPECT_FALSE(line["repeats"][0]["baseline"].contains("idle_seconds"));
  EXPECT_FALSE(line["repeats"][0]["baseline"]["requests"][0].contains("arrival"));
  EXPECT_FALSE(summarize(line).load);
}

}  // namespace
}  // namespace foretoken::test

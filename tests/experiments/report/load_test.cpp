// Figures and tables of open loops, worked by hand.

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "experiments/report/report.h"
#include "experiments/report/summary.h"
#include "experiments/report/tables.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"

namespace foretoken {
namespace {

using nlohmann::json;

// Four requests that arrive at 0, 1, 2 and 3 s and end within 5 s, of which one is idle. Times per token: .1, .2, .1,
// and none for a single token. The third waits until after the last arrival.
json side(double slower) {
  json m = test::measure({{0, "story", 10, 5, 8, 8, 5, 1, .1 * slower, .9 * slower},
                          {1, "math", 10, 5, 8, 8, 5, 1, .1 * slower, 1.8 * slower},
                          {2, "story", 10, 5, 8, 8, 5, 1, .3 * slower, .9 * slower},
                          {3, "math", 1, 1, 0, 0, 0, 1, .1 * slower, 0}},
                         {16}, {16}, {15}, {1, 15}, 0.4, 1.0);
  const double queued[] = {0, 0, 1.5, 0};
  for (std::size_t i = 0; i < 4; ++i)
    m["requests"][i].update({{"arrival", double(i)},
                             {"queued", queued[i]},
                             {"first_tokens", 1},
                             {"steady_tokens", i == 1 ? 6 : 0},
                             {"steady_seconds", i == 1 ? 2.0 : 0.0}});
  m["seconds"] = 5, m["idle_seconds"] = 1;
  return m;
}

json loaded_line(double rate = 1, int alternations = 2) {
  json run = test::run("draft_model", 2);
  run["workload"].update({{"rate", rate}, {"ttft_limit", .2}, {"tpot_limit", .15}});
  json repeats = json::array();
  for (int i = 0; i < alternations; ++i) repeats.push_back({{"speculative", side(1)}, {"baseline", side(2)}});
  return test::line("load" + std::to_string(rate), run, {{"/workload/rate", rate}}, repeats);
}

TEST(Load, AnswersWorkedByHand) {
  const Summary s = summarize(loaded_line());
  ASSERT_EQ(s.error, "");
  ASSERT_TRUE(s.load);
  const LoadFigures &fast = s.load->speculative, &plain = s.load->baseline;
  EXPECT_EQ(s.load->rate, 1);
  EXPECT_DOUBLE_EQ(fast.served, 4 / 5.0);
  EXPECT_DOUBLE_EQ(fast.tokens_per_second.value, 31 / 5.0);
  EXPECT_DOUBLE_EQ(fast.busy, 4 / 5.0);
  EXPECT_DOUBLE_EQ(fast.capacity, (6 / 2.0) / (31 / 4.0));
  EXPECT_DOUBLE_EQ(fast.within.value, 0.5) << "the first, and the one without a time per token";
  EXPECT_DOUBLE_EQ(fast.goodput.value, 2 / 5.0);
  EXPECT_DOUBLE_EQ(plain.within.value, 0.25) << "its times are twice as long: .2 s to the first token is within";
  EXPECT_DOUBLE_EQ(s.load->latency_ratio.value, 2);
  EXPECT_DOUBLE_EQ(s.decode_speedup.value, 2);
  EXPECT_DOUBLE_EQ(s.speculative.latency.ttft.p50, 100);
  EXPECT_DOUBLE_EQ(fast.queue.p50, 0);
  EXPECT_NEAR(fast.queue.p99, 1500, 100);
}

json varied_line(const json& rates) {
  json line = loaded_line();
  line["key"] = "varied", line["axes"] = json::object();
  line["run"]["workload"].erase("rate");
  line["run"]["workload"]["rates"] = rates;
  return line;
}

TEST(Load, ThatRisesAndFallsHasAMeanRate) {
  const Load load = *summarize(varied_line({{1, 0.5}, {1, 1.5}})).load, one = *summarize(loaded_line()).load;
  EXPECT_TRUE(load.varies() && !one.varies());
  EXPECT_EQ(load.rate, 1);
  EXPECT_EQ(load.period, 2);
  EXPECT_DOUBLE_EQ(load.periods, 1.5) << "the last request arrives after three seconds";
  EXPECT_EQ(load.speculative.goodput.value, one.speculative.goodput.value);
  EXPECT_EQ(load.speculative.overloaded, one.speculative.overloaded);
  EXPECT_TRUE(summarize(varied_line({{1, 0.001}, {1, 1.999}})).load->speculative.overloaded) << "by the mean";
  EXPECT_FALSE(summarize(varied_line({{1, 0.1}, {1, 0.2}})).load->speculative.overloaded) << "it can serve 0.39";
  const json figures = to_json(summarize(varied_line({{1, 0.5}, {1, 1.5}})))["figures"]["load"];
  EXPECT_EQ(figures["period"], 2);
  EXPECT_EQ(figures["periods"], 1.5);
  EXPECT_TRUE(to_json(summarize(loaded_line()))["figures"]["load"]["period"].is_null());
}

TEST(Load, OfRatesThatAreNoneIsAnError) {
  EXPECT_TRUE(test::says(summarize(varied_line({{1, 0}})).error, "'/workload/rates'"));
}

TEST(Load, LimitsAreUpperBoundsAndEitherMayBeMissing) {
  const auto within = [](const char* key, const json& limit) {
    json line = loaded_line();
    line["run"]["workload"][key] = limit;
    return summarize(line).load->speculative.within.value;
  };
  EXPECT_EQ(within("ttft_limit", nullptr), 0.75);
  EXPECT_EQ(within("tpot_limit", nullptr), 0.75);
  EXPECT_EQ(within("ttft_limit", 0.1), 0.5) << "a limit itself is within";
  EXPECT_EQ(within("ttft_limit", 0.0999), 0);
  json line = loaded_line();
  line["run"]["workload"].erase("ttft_limit"), line["run"]["workload"].erase("tpot_limit");
  const Load load = *summarize(line).load;
  EXPECT_FALSE(load.limited());
  EXPECT_FALSE(load.speculative.within.known() || load.speculative.goodput.known());
}

TEST(Load, OverloadIsAQueueThatGrows) {
  const auto overloaded = [](const char* key, double value) {
    json line = loaded_line();
    for (json& repeat : line["repeats"])
      for (json& request : repeat["speculative"]["requests"])
        if (request["steady_seconds"] != 0.0 || key == std::string("queued")) request[key] = value;
    return summarize(line).load->speculative.overloaded;
  };
  EXPECT_TRUE(overloaded("steady_tokens", 6));
  EXPECT_FALSE(overloaded("steady_tokens", 60)) << "it can serve more than arrives";
  EXPECT_FALSE(overloaded("queued", 0)) << "none waits";
}

TEST(Load, IntervalsAreOverAlternations) {
  const Load once = *summarize(loaded_line(1, 1)).load;
  EXPECT_FALSE(once.speculative.within.bounded() || once.speculative.goodput.bounded());
  EXPECT_FALSE(once.latency_ratio.bounded());
  json line = loaded_line(1, 3);
  line["repeats"][1]["speculative"]["requests"][1]["decode_seconds"] = 0.9;
  line["repeats"][2]["baseline"]["requests"][0]["seconds"] = 2.5;
  const Load three = *summarize(line).load;
  EXPECT_DOUBLE_EQ(three.speculative.within.value, 7 / 12.0);
  EXPECT_NEAR(three.speculative.within.low, 0.224523196, 1e-9)
      << "Student's, of the arcsines of the roots of 2, 3 and 2 of 4";
  EXPECT_NEAR(three.speculative.within.high, 0.897316448, 1e-9);
  EXPECT_LT(three.speculative.goodput.low, three.speculative.goodput.value);
  EXPECT_GT(three.latency_ratio.high, three.latency_ratio.value);
  for (json& request : line["repeats"][0]["speculative"]["requests"]) request["ttft"] = 9;
  const Interval none = summarize(line).load->speculative.goodput;
  EXPECT_TRUE(none.known() && !none.bounded()) << "an alternation without any has no logarithm";
}

TEST(Load, SharesThatFewAlternationsCannotBoundHaveNoInterval) {
  const auto bounded = [](std::vector<Term> repeats) { return repeated_share_interval(repeats).bounded(); };
  EXPECT_TRUE(bounded({{20, 40}, {30, 40}, {20, 40}}));
  EXPECT_FALSE(bounded({{20, 40}, {20, 40}, {20, 40}})) << "equal shares have no spread, which is not certainty";
  EXPECT_FALSE(bounded({{40, 40}, {39, 40}, {33, 40}})) << "more than nine of ten";
  EXPECT_FALSE(bounded({{0, 40}, {1, 40}, {9, 40}})) << "less than one of ten";
  EXPECT_FALSE(bounded({{20, 40}})) << "one alternation";
  const Interval near = repeated_share_interval(std::vector<Term>{{40, 40}, {36, 40}, {20, 40}});
  EXPECT_TRUE(near.low >= 0 && near.high == 1) << "an arcsine ends at a right angle";
}

TEST(Load, GoodputOfFewHasNoInterval) {
  const auto goodput = [](int within) {
    json line = loaded_line(1, 3);
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t i = 0; i < 4; ++i) {
        json& request = line["repeats"][k]["speculative"]["requests"][i];
        request["ttft"] = int(i) < within ? .1 : .9, request["decode_seconds"] = .1;
      }
    line["repeats"][0]["speculative"]["seconds"] = 5.5, line["repeats"][0]["speculative"]["idle_seconds"] = 1.5;
    return summarize(line).load->speculative.goodput;
  };
  EXPECT_TRUE(goodput(2).bounded());
  EXPECT_TRUE(goodput(1).known() && !goodput(1).bounded()) << "a share of one in four";
}

TEST(Load, AFailedRequestIsNotServed) {
  json line = loaded_line();
  line["repeats"][0]["speculative"]["requests"][0]["finish"] = "failed";
  line["failures"] = {{{"request", 0}, {"prompt", 0}, {"side", "speculative"}, {"repeat", 0}, {"failure", "a NaN"}}};
  const Summary s = summarize(line);
  EXPECT_EQ(s.left_out, 1);
  EXPECT_DOUBLE_EQ(s.load->speculative.served, 7 / 10.0);
  EXPECT_DOUBLE_EQ(s.load->speculative.within.value, 3 / 8.0);
  EXPECT_DOUBLE_EQ(s.load->baseline.served, 8 / 10.0);
}

TEST(Load, WhatTheRateCapsIsNoSpeedup) {
  const Summary s = summarize(loaded_line());
  EXPECT_FALSE(s.speedup.known() || s.steady_speedup.known());
  EXPECT_TRUE(std::isnan(s.question_speedup) && std::isnan(s.theory.speedup));
  for (const CategoryFigures& category : s.categories) EXPECT_FALSE(category.speedup.known());
  EXPECT_DOUBLE_EQ(s.tokens_per_second.value, 31 / 5.0) << "idle time counts";
  EXPECT_DOUBLE_EQ(s.tau.value, 31 / 16.0);
  EXPECT_TRUE(best_of(View::of({s})).empty());
  const json figures = to_json(s)["figures"];
  EXPECT_TRUE(figures["speedup"]["value"].is_null());
  EXPECT_EQ(figures["load"]["rate"], 1);
  EXPECT_EQ(figures["load"]["speculative"]["goodput"]["value"], 0.4);
  EXPECT_TRUE(to_json(summarize(test::worked_line()))["figures"]["load"].is_null());
}

TEST(Load, SharesAndIdleTimeAreTheSeconds) {
  json line = loaded_line();
  line["repeats"][0]["baseline"]["idle_seconds"] = 0.5;
  EXPECT_TRUE(test::says(summarize(line).error, "4.0", "not to the 5.0", "0.5", "idle"));
  line = loaded_line();
  line["repeats"][0]["baseline"]["requests"][0].erase("arrival");
  EXPECT_TRUE(test::says(summarize(line).error, "its requests lack 'arrival'"));
}

// The speculative side is within the limits at rates 1 and 2, but for one request of rate 4; the plain one at rate 1.
std::vector<json> curve() {
  std::vector<json> lines;
  for (const double rate : {4, 1, 2}) {
    json line = loaded_line(rate);
    const bool fast = rate < 4, plain = rate < 2;
    for (json& repeat : line["repeats"])
      for (const auto& [name, within] : {std::pair("speculative", fast), std::pair("baseline", plain)})
        for (json& request : repeat[name]["requests"])
          request["ttft"] = within ? .1 : .3, request["decode_seconds"] = .1;
    lines.push_back(line);
  }
  return lines;
}

TEST(LoadTables, AreCurvesOfBothSides) {
  const std::vector<Table> tables = load_tables(view_of(curve()));
  ASSERT_EQ(tables.size(), 3u);
  ASSERT_EQ(tables[0].rows.size(), 6u);
  EXPECT_EQ(tables[0].rows[0].cells[0].shown(), "1");
  EXPECT_EQ(tables[0].rows[0].cells[1].shown(), "plain");
  EXPECT_EQ(tables[0].rows[5].cells[0].shown(), "4");
  EXPECT_EQ(tables[0].rows[5].cells[1].shown(), "drafts");
  EXPECT_EQ(tables[0].rows[5].cells.back().shown(), "overload");
  ASSERT_EQ(tables[2].rows.size(), 1u);
  EXPECT_EQ(tables[2].columns.size(), 2u);
  EXPECT_EQ(tables[2].rows[0].cells[0].shown(), "1.00");
  EXPECT_EQ(tables[2].rows[0].cells[1].shown(), "2.00");
}

TEST(LoadTables, NameALoadThatRisesAndFalls) {
  ShowOptions options;
  options.width = 0;
  const json line = varied_line({{1, 0.5}, {1, 1.5}});
  EXPECT_TRUE(test::says(show({line}, options), "[[1,0.5],[1,1.5]]", "seconds and requests per second of each"));
  EXPECT_EQ(show({line}, options).find("part of the load"), std::string::npos);
  EXPECT_TRUE(test::says(show({varied_line({{2, 0.5}, {2, 1.5}})}, options), "part of the load",
                         "before '/workload/rates' had come once"));
  json other = varied_line({{1, 1.5}, {1, 0.5}});
  other["key"] = "other";
  options.format = "csv", options.tables = {"load"};
  EXPECT_TRUE(test::says(show({line, other}, options), "workload.rates,rate,side", "\"[[1,1.5],[1,0.5]]\",1,plain"));
  EXPECT_TRUE(test::says(show({line}, options), "rates,rate,side", "\"[[1,0.5],[1,1.5]]\",1,plain"));
  EXPECT_EQ(show(curve(), options).find("rates"), std::string::npos) << "no column without one";
}

// The greatest rate below which none misses is found on the curve of constant rates alone.
TEST(LoadTables, ALoadThatRisesAndFallsIsNoPointOfTheCurve) {
  std::vector<json> lines = curve();
  json varied = varied_line({{1, 0.5}, {1, 1.5}});
  varied["axes"] = {{"/workload/rate", nullptr}};
  lines.push_back(varied);
  const Table table = load_tables(view_of(lines))[2];
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0].cells.end()[-2].shown(), "1.00");
  EXPECT_EQ(table.rows[0].cells.end()[-1].shown(), "2.00");
}

TEST(LoadTables, SayWhyThereIsNoSpeedup) {
  ShowOptions options;
  options.width = 0;
  const std::string all = show(curve(), options);
  EXPECT_TRUE(test::says(all, "Open loop: throughput and latency", "would be no speedup", "exact ✓, open loop",
                         "Open loop: goodput", "overload: while all slots"));
  options.format = "csv", options.tables = {"load"};
  EXPECT_TRUE(test::says(show(curve(), options), "workload.rate,side,served,tokens_per_second,busy_percent,capacity",
                         "goodput_low", "ttft_limit"));
  options.format = "terminal", options.tables.clear();
  EXPECT_EQ(show({test::worked_line()}, options).find("Open loop"), std::string::npos);
  EXPECT_NE(show({loaded_line()}, options).find("rate"), std::string::npos) << "where it is no axis it is a column";
}

TEST(LoadTables, ComparisonsSayThatThereIsNoSpeedup) {
  CompareOptions options;
  EXPECT_TRUE(test::says(compare({loaded_line()}, {loaded_line()}, options), "not comparable 1", "an open loop"));
}

}  // namespace
}  // namespace foretoken

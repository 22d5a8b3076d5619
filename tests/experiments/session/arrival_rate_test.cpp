// Rates of requests over time: the inverse of their integral, worked by hand, and lists that are none.
#include "experiments/session/arrival_rate.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

TEST(ArrivalRates, OneRateIsALine) {
  const ArrivalRate rate = 4;
  EXPECT_EQ(rate.mean(), 4);
  EXPECT_EQ(rate.period(), 0);
  EXPECT_EQ(rate.when(0), 0);
  EXPECT_EQ(rate.when(10), 2.5);
}

// Two seconds of 1 a second, one of 4, one of none: six in four seconds.
TEST(ArrivalRates, PiecesFollowEachOtherAndRepeat) {
  const ArrivalRate rate(std::vector<ArrivalRate::Piece>{{2, 1}, {1, 4}, {1, 0}});
  EXPECT_EQ(rate.mean(), 1.5);
  EXPECT_EQ(rate.period(), 4);
  EXPECT_EQ(rate.when(0), 0);
  EXPECT_EQ(rate.when(1), 1);
  EXPECT_EQ(rate.when(2), 2);
  EXPECT_EQ(rate.when(4), 2.5);
  EXPECT_NEAR(rate.when(5.999), 3, 1e-3);
  EXPECT_EQ(rate.when(6), 4) << "after the pause";
  EXPECT_EQ(rate.when(6 * 1000 + 4), 4002.5);
  double last = 0;
  for (int i = 1; i < 3000; ++i) {
    const double now = rate.when(0.01 * i), phase = now - 4 * std::floor(now / 4);
    EXPECT_GE(now, last);
    EXPECT_LE(phase, 3 + 1e-9) << "none arrive in the pause";
    last = now;
  }
}

TEST(ArrivalRates, PiecesOfOneRateAreThatRate) {
  const ArrivalRate one = 0.3, pieces(std::vector<ArrivalRate::Piece>{{0.7, 0.3}, {11, 0.3}, {0.1, 0.3}});
  EXPECT_EQ(pieces.mean(), 0.3);
  EXPECT_EQ(pieces.period(), 0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(pieces.when(0.37 * i), one.when(0.37 * i)) << "to the last bit";
}

TEST(ArrivalRates, OfRuns) {
  const auto of = [](const json& workload) { return arrival_rate_of({{"workload", workload}}); };
  EXPECT_FALSE(of(json::object()) || of({{"rate", nullptr}, {"rates", nullptr}}) || arrival_rate_of(json::object()));
  EXPECT_EQ(of({{"rate", 3}})->mean(), 3);
  EXPECT_EQ(of({{"rates", {{10, 2}, {30, 6}}}})->mean(), 5);
  EXPECT_EQ(of({{"rates", {{10, 2}, {30, 6}}}})->period(), 40);
  EXPECT_EQ(rate_key_of({{"workload", {{"rate", 3}}}}), "/workload/rate");
  EXPECT_EQ(rate_key_of({{"workload", {{"rates", {{1, 2}}}}}}), "/workload/rates");
  EXPECT_EQ(rate_key_of({{"workload", json::object()}}), "");
  EXPECT_TRUE(says(sentence_of([&] { of({{"rates", {{10, 0}}}}); }), "'/workload/rates' are 0"));
}

TEST(ArrivalRates, RefusalsSayWhatToDo) {
  for (const char* good : {"[[30,2]]", "[[0.001,1000000],[1000000,0.001]]", "[[1,2],[1,0]]"})
    EXPECT_EQ(refusal_of_rates(json::parse(good)), "") << good;
  const auto refused = [](const char* list, const auto&... words) {
    return says(refusal_of_rates(json::parse(list)), "'/workload/rates'", words...);
  };
  EXPECT_TRUE(refused("[]", "pieces of [seconds, requests per second]", "not []"));
  EXPECT_TRUE(refused("4", "must be a list", "not 4"));
  EXPECT_TRUE(refused("[[1,2],[3]]", "piece 2", "[seconds, requests per second]", "not [3]"));
  EXPECT_TRUE(refused("[[1,\"2\"]]", "piece 1", "not [1,\"2\"]"));
  EXPECT_TRUE(refused("[[1,2,3]]", "piece 1", "not [1,2,3]"));
  EXPECT_TRUE(refused("[4]", "piece 1", "not 4"));
  EXPECT_TRUE(refused("[[1,2],[-1,2]]", "piece 2", "must last 0.001 to 1000000 seconds", "not -1"));
  EXPECT_TRUE(refused("[[0,2]]", "piece 1", "seconds", "not 0"));
  EXPECT_TRUE(refused("[[1,-2]]", "piece 1", "requests per second", "not -2"));
  EXPECT_TRUE(refused("[[1,1e-4]]", "piece 1", "0, or 0.001 to 1000000"));
  EXPECT_TRUE(refused("[[1,0],[2,0]]", "all rates", "are 0", "above 0"));
  EXPECT_TRUE(refused("[[1,0],[2,3]]", "the first piece", "end of the list"));
  EXPECT_TRUE(refused("[[1,1],[1000000,0]]", "less than 0.001", "shorten its pauses"));
}

}  // namespace
}  // namespace foretoken::test

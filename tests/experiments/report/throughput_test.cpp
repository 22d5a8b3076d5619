// Intervals of an open loop's tokens per second, of queues worked by hand.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/report/experiment.h"

namespace foretoken {
namespace {

// Requests that take `seconds` on one place each, of which all arrive at once: the work alone says when the last ends.
ServedQueue at_once(int requests, double seconds) {
  ServedQueue found;
  for (int i = 0; i < requests; ++i) found.requests.push_back({0, seconds * (i + 1)});
  found.tokens = 10 * requests, found.seconds = seconds * requests;
  return found;
}

// At a rate so high that arrivals take no time only the machine varies: Student's interval of two logarithms.
TEST(Throughput, OfArrivalsThatTakeNoTimeIsStudents) {
  const Interval found = throughput_interval(std::vector{at_once(20, 0.9), at_once(20, 1.1)}, 1e6, 1);
  EXPECT_DOUBLE_EQ(found.value, 10);
  const double half = 12.7062047 * std::log(1.1 / 0.9) / 2;
  EXPECT_NEAR(std::log(found.high / 10), half, 1e-3);
  EXPECT_NEAR(std::log(10 / found.low), half, 1e-3);
}

// Requests that take no time end as they arrive: 100 gaps in each of four alternations, whose total is about normal
// with a relative deviation of 1 / sqrt(400).
TEST(Throughput, OfWorkThatTakesNoTimeIsThatOfArrivals) {
  ServedQueue queue;
  for (int i = 0; i <= 100; ++i) queue.requests.push_back({0.5 * i, 0.5 * i});
  queue.tokens = 1010, queue.seconds = 50;
  const Interval found = throughput_interval(std::vector(4, queue), 2, 3);
  EXPECT_DOUBLE_EQ(found.value, 20.2);
  EXPECT_NEAR(found.high / found.value, 1 + 1.96 / 20, 0.015);
  EXPECT_NEAR(found.low / found.value, 1 - 1.96 / 20, 0.015);
}

// Requests that take no time, in pieces of a second that bring a hundred, each before nine seconds of pause. The last
// of 100 arrives before or after the first pause, as the draws have it, and the last of 150 hardly ever elsewhere than
// in the second piece: half a second of ten varies.
TEST(Throughput, OfArrivalsAtRatesIsThatOfTheirPieces) {
  const auto width = [](int requests, const ArrivalRate& rate) {
    ServedQueue queue;
    for (int i = 0; i <= requests; ++i) queue.requests.push_back({0.1 * i, 0.1 * i});
    queue.tokens = requests, queue.seconds = 0.1 * requests;
    const Interval found = throughput_interval(std::vector(4, queue), rate, 2);
    return found.width() / found.value;
  };
  const ArrivalRate same({{1, 10}, {3, 10}}), pauses({{1, 100}, {9, 0}});
  EXPECT_EQ(width(100, same), width(100, 10));
  EXPECT_GT(width(100, pauses), 3 * width(100, 10));
  EXPECT_LT(width(150, pauses), 0.3 * width(150, 10));
}

// Two places: requests that arrive after 0, 1, 1 and 1 s start after 0, 1, 3 and 4 s and take 3 s each. Were there no
// gaps, the last would end after 6 s, as where one request takes 6 s, so that nothing varies.
TEST(Throughput, ARequestWaitsForAPlace) {
  ServedQueue waiting, alone;
  waiting.requests = {{0, 3}, {1, 4}, {1, 6}, {1, 7}}, alone.requests = {{0, 6}, {6, 6}, {6, 6}, {6, 6}};
  waiting.tokens = alone.tokens = 4, waiting.seconds = 7, alone.seconds = 6;
  const std::vector both{waiting, alone};
  const Interval two = throughput_interval(both, 1e6, 2);
  EXPECT_NEAR(two.low, two.value, 1e-4);
  EXPECT_NEAR(two.high, two.value, 1e-4);
  EXPECT_GT(throughput_interval(both, 1e6, 1).width(), 0.1) << "one place: 3, 1, 2 and 1 s";
  EXPECT_LT(throughput_interval(both, 0.5, 2).low, two.value / 1.3) << "gaps that take longer than the work";
}

TEST(Throughput, HasNoBoundsWhereNothingTells) {
  const ServedQueue one = at_once(3, 1);
  EXPECT_FALSE(throughput_interval(std::vector{one}, 1, 1).bounded()) << "one alternation";
  ServedQueue none = one;
  none.tokens = 0;
  const Interval found = throughput_interval(std::vector{one, none}, 1, 1);
  EXPECT_TRUE(found.known() && !found.bounded()) << "an alternation without tokens has no logarithm";
  EXPECT_FALSE(throughput_interval(std::vector<ServedQueue>{}, 1, 1).known());
  EXPECT_TRUE(throughput_interval(std::vector(2, at_once(1, 1)), 1, 1).bounded()) << "one request, no gap";
}

}  // namespace
}  // namespace foretoken

// Intervals of an open loop's tokens per second where Student's does not cover: the queue is near what the engine can
// serve. And where its steps last longer the more requests share them.
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/report/experiment.h"
#include "tests/experiments/report/fitted_queue.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

constexpr double kLeast = 0.93, kMost = 0.97;
constexpr int kPool = 500, kExperiments = 150;

ServedQueue plain_of(const Alternation& alternation) {
  ServedQueue found;
  found.seconds = alternation.baseline.seconds;
  for (const RequestRecord& r : alternation.baseline.requests) {
    found.requests.push_back({*r.arrival, *r.arrival + r.seconds});
    found.tokens += double(r.tokens);
  }
  return found;
}

struct Coverage {
  int all = 0, held = 0, of_students = 0;
  double width = 0, students_width = 0;  // sums, relative to the value

  double share() const { return double(held) / all; }
};

// Of plain decoding, in experiments that draw their alternations from a pool, whose own rate is the truth.
void add(const FittedQueue& queue, double load, int repeats, std::mt19937& random, Coverage& coverage) {
  std::vector<ServedQueue> pool;
  Term total{0, 0};
  for (int k = 0; k < kPool; ++k) {
    pool.push_back(plain_of(queue.alternation(load, random)));
    total.top += pool.back().tokens, total.bottom += pool.back().seconds;
  }
  const double truth = total.top / total.bottom;
  std::uniform_int_distribution<std::size_t> any(0, kPool - 1);
  for (int e = 0; e < kExperiments; ++e) {
    std::vector<ServedQueue> drawn;
    Measurements times(1, repeats);
    for (int r = 0; r < repeats; ++r) {
      drawn.push_back(pool[any(random)]);
      times.at(0, r) = {drawn.back().tokens, drawn.back().seconds};
    }
    const Interval found = throughput_interval(drawn, queue.rate(load), queue.places()), old = paired_interval(times);
    ++coverage.all, coverage.held += found.contains(truth), coverage.of_students += old.contains(truth);
    coverage.width += found.width() / found.value, coverage.students_width += old.width() / old.value;
  }
}

// The machine's speed does not vary: nothing hides that most alternations take as long as the work, and a few longer.
TEST(ThroughputCoverage, NearWhatTheEngineServesAtMost) {
  for (const int repeats : {3, 5, 10}) {
    Coverage coverage;
    std::mt19937 random(1);
    for (const FittedQueue& queue : fitted_queues())
      for (const double load : {0.95, 1.2}) add(queue.with_places(1).steady(), load, repeats, random, coverage);
    EXPECT_TRUE(coverage.share() >= kLeast && coverage.share() <= kMost)
        << coverage.share() << ", " << repeats << " alternations";
    EXPECT_LT(double(coverage.of_students) / coverage.all, kLeast) << repeats << " alternations";
  }
}

// Each load alone, from a queue that is mostly empty to one that grows as long as requests arrive.
TEST(ThroughputCoverage, OfEveryLoad) {
  for (const double load : {0.1, 0.6, 0.95, 1.2, 3.0}) {
    Coverage coverage;
    std::mt19937 random(2);
    for (const FittedQueue& queue : fitted_queues()) add(queue.with_places(1), load, 3, random, coverage);
    EXPECT_TRUE(coverage.share() >= kLeast && coverage.share() <= kMost) << coverage.share() << ", load " << load;
    EXPECT_LT(coverage.width, coverage.students_width) << "load " << load;
  }
}

// A request alone takes little more than half the time of one that shares all its steps.
TEST(ThroughputCoverage, IsAtMost99WhereArrivalsChangeTheWork) {
  for (const int places : {4, 16, 64}) {
    Coverage coverage;
    std::mt19937 random(3);
    for (const FittedQueue& queue : fitted_queues())
      for (const double load : {0.95, 1.2}) add(queue.with_places(places), load, 3, random, coverage);
    EXPECT_TRUE(coverage.share() >= kLeast && coverage.share() <= 0.99) << coverage.share() << ", places " << places;
  }
}

}  // namespace
}  // namespace foretoken::test

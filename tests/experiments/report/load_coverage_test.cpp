// What is printed as 95 % of an open loop covers between 93 and 97 of 100 truths, in a simulated queue that was fitted
// to the committed results.
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/report/results.h"
#include "tests/experiments/report/fitted_queue.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

constexpr double kLeast = 0.93, kMost = 0.97;
constexpr int kPool = 250, kExperiments = 40;

struct Metric {
  const char* name;
  Interval (*of)(const Load& load);
};

const Metric kMetrics[] = {
    {"within, speculation", [](const Load& l) { return l.speculative.within; }},
    {"within, plain", [](const Load& l) { return l.baseline.within; }},
    {"goodput, speculation", [](const Load& l) { return l.speculative.goodput; }},
    {"goodput, plain", [](const Load& l) { return l.baseline.goodput; }},
    {"tokens per second, speculation", [](const Load& l) { return l.speculative.tokens_per_second; }},
    {"tokens per second, plain", [](const Load& l) { return l.baseline.tokens_per_second; }},
    {"latency ratio", [](const Load& l) { return l.latency_ratio; }},
    {"decode speedup", [](const Load& l) { return l.decode_speedup; }},
};

struct Count {
  int held = 0, bounded = 0, all = 0;
  double covered() const { return double(held) / bounded; }
};

// Every ninth committed line: of one and of four places, of 24 and of 60 requests.
std::vector<FittedQueue> queues() {
  std::vector<FittedQueue> found;
  int line = 0;
  for (const char* name : {"lengths", "quickstart"})
    for (const json& l :
         load_results(std::string(FORETOKEN_SOURCE_DIR) + "/experiments/results/cpu/" + name + ".jsonl.gz"))
      if (l.contains("repeats") && line++ % 9 == 0) found.emplace_back(l);
  return found;
}

// Experiments draw their alternations from a pool, whose own figures are the truth. `limit`: of the time per token, in
// steps of plain decoding; that of the first token is five times as long.
void add(const FittedQueue& queue, double load, double limit, int repeats, std::mt19937& random,
         std::map<std::string, Count>& counts) {
  const json run = queue.run(load, 5 * limit, limit);
  json pool = json::array();
  for (int k = 0; k < kPool; ++k) pool.push_back(queue.alternation(load, random));
  const Load truth = *load_of(run, pool, {});
  std::uniform_int_distribution<std::size_t> any(0, kPool - 1);
  for (int e = 0; e < kExperiments; ++e) {
    json drawn = json::array();
    for (int r = 0; r < repeats; ++r) drawn.push_back(pool[any(random)]);
    const Load found = *load_of(run, drawn, {});
    for (const Metric& m : kMetrics) {
      const Interval interval = m.of(found);
      Count& count = counts[m.name];
      ++count.all, count.bounded += interval.bounded();
      count.held += interval.bounded() && interval.contains(m.of(truth).value);
    }
  }
}

// From a queue that is mostly empty to one that grows as long as requests arrive; of the limits a tight one, and one
// that plain decoding meets unless it waits.
TEST(LoadCoverage, OfWhatIsPrinted) {
  for (const int repeats : {3, 5}) {
    std::map<std::string, Count> counts;
    std::mt19937 random(20261126);
    for (const FittedQueue& queue : queues())
      for (const double load : {0.3, 0.6, 0.8, 0.95, 1.2, 1.6})
        for (const double limit : {0.8, 1.3}) add(queue, load, limit, repeats, random, counts);
    for (const auto& [name, count] : counts) {
      RecordProperty(name + " " + std::to_string(repeats), std::to_string(count.covered()));
      EXPECT_TRUE(count.covered() >= kLeast && count.covered() <= kMost)
          << name << ", " << repeats << " alternations: " << count.covered() << " of " << count.bounded;
      EXPECT_GT(count.bounded, count.all / 5) << name;
    }
  }
}

// As if every request were a trial of its own, and as if alternations varied only like their trials.
TEST(LoadCoverage, OfSharesThatCountRequestsIsNot95) {
  int held = 0, count = 0;
  std::mt19937 random(1);
  for (const FittedQueue& queue : queues()) {
    const json run = queue.run(0.3, 3.8, 0.95);
    std::vector<Term> pool;
    for (int k = 0; k < kPool; ++k) {
      const double within = load_of(run, json::array({queue.alternation(0.3, random)}), {})->baseline.within.value;
      pool.push_back({within * double(queue.requests()), double(queue.requests())});
    }
    std::uniform_int_distribution<std::size_t> any(0, kPool - 1);
    for (int e = 0; e < 100; ++e) {
      const std::vector<Term> drawn{pool[any(random)], pool[any(random)], pool[any(random)]};
      held += share_interval(drawn).contains(ratio_of_totals(pool)), ++count;
    }
  }
  EXPECT_LT(double(held) / count, kLeast);
}

}  // namespace
}  // namespace foretoken::test

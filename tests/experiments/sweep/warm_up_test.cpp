// The warm-up requests of a run, and when a run is measured again.
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/sweep/runner.h"

namespace foretoken::test {
namespace {

// Each running request emits a token a step; the next request starts when one ends.
std::set<std::size_t> sizes_met(const std::vector<Job>& jobs, std::size_t batch, bool& mixed) {
  std::set<std::size_t> met;
  std::vector<int> left;
  std::size_t next = 0;
  for (bool first = true; next < jobs.size() || !left.empty(); first = false) {
    const std::size_t decoding = left.size();
    while (left.size() < batch && next < jobs.size()) left.push_back(jobs[next++].request.limits.max_new_tokens);
    mixed |= !first && decoding > 0 && left.size() > decoding;
    met.insert(left.size());
    for (int& n : left) --n;
    std::erase(left, 0);
  }
  return met;
}

TEST(WarmUp, meets_every_size_of_a_batch_and_prompts_among_decoding) {
  for (std::size_t batch = 1; batch <= 64; ++batch) {
    std::vector<Job> jobs(4 * batch);
    for (Job& j : jobs) j.request.limits.max_new_tokens = 64;
    bool mixed = false;
    const auto met = sizes_met(warm_up_jobs(jobs, batch), batch, mixed);
    for (std::size_t size = 1; size <= batch; ++size) {
      const auto near = met.lower_bound(size);
      ASSERT_NE(near, met.end()) << batch;
      EXPECT_LT(*near - size, (batch + 15) / 16) << size << " of " << batch;
    }
    EXPECT_EQ(mixed, batch > 1) << batch;
  }
}

TEST(WarmUp, what_a_device_recorded_on_the_way_is_measured_again_and_once) {
  const auto of = [](std::vector<int> recorded) {
    std::size_t asked = 0;
    std::size_t discarded = 0;
    const auto measure = [&] { return Measured{{{"recorded", recorded.at(asked)}, {"number", asked++}}, {}, {}}; };
    const Measured m = measure_settled(measure, [&] { ++discarded; });
    EXPECT_EQ(discarded + 1, asked);
    EXPECT_EQ(m.measure["number"], asked - 1) << "the last one counts";
    return asked;
  };
  EXPECT_EQ(of({0}), 1u);
  EXPECT_EQ(of({1, 0}), 2u);
  EXPECT_EQ(of({200, 200}), 2u) << "a device that always records is not measured forever";
}

TEST(WarmUp, asks_for_no_more_than_the_run) {
  std::vector<Job> jobs(3);
  for (Job& j : jobs) j.request.limits.max_new_tokens = 5;
  const auto few = warm_up_jobs(jobs, 8);
  ASSERT_EQ(few.size(), 3u);
  for (const Job& j : few) EXPECT_TRUE(j.request.limits.max_new_tokens >= 1 && j.request.limits.max_new_tokens <= 5);
}

}  // namespace
}  // namespace foretoken::test

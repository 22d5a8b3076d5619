// Host work by all cores: every part is done once, and `between` can end it early.
#include "framework/model/in_parallel.h"

#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "framework/model/random_weights.h"

namespace foretoken::test {
namespace {

constexpr std::int64_t kMuch = std::int64_t(1) << 20;  // work of one row, so that a round has few of them

TEST(InParallel, DoesEveryRowOnceInRoundsToo) {
  for (const std::int64_t n : {0, 1, 63, 64, 65, 1000}) {
    std::vector<int> done(std::size_t(n), 0);
    int rounds = 0;
    const auto f = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++done[std::size_t(i)];
    };
    in_parallel(n, kMuch, f);
    in_parallel(n, kMuch, f, [&] { ++rounds; });
    EXPECT_EQ(done, std::vector<int>(std::size_t(n), 2)) << n;
    EXPECT_EQ(rounds, (n + 63) / 64) << n;
  }
}

TEST(InParallel, UsesSeveralThreads) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core";
  std::mutex mutex;
  std::set<std::thread::id> ids;
  const std::int64_t before = threads_started();
  in_parallel(64, kMuch, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_GT(ids.size(), 1u);
  EXPECT_EQ(threads_started() - before, std::int64_t(ids.size()) - 1) << "all but the caller";
}

TEST(InParallel, LeavesLittleWorkOnTheCallingThread) {
  const std::int64_t before = threads_started();
  in_parallel(64, 1, [](std::int64_t, std::int64_t) {});
  EXPECT_EQ(threads_started(), before);
}

TEST(InParallel, EndsWithWhatIsThrownBetweenTwoRounds) {
  std::vector<int> done(1000, 0);
  int rounds = 0;
  const auto f = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++done[std::size_t(i)];
  };
  const auto stop = [&] {
    if (++rounds == 3) throw std::runtime_error("stop");
  };
  EXPECT_THROW(in_parallel(1000, kMuch, f, stop), std::runtime_error);
  EXPECT_EQ(std::accumulate(done.begin(), done.end(), 0), 2 * 64);
}

// An interruption need not wait until a matrix of gigabytes is finished.
TEST(RandomWeights, EndInTheMiddleOfAMatrix) {
  int rounds = 0;
  const RandomWeights weights(1, [&] {
    if (++rounds == 2) throw std::runtime_error("stop");
  });
  EXPECT_THROW((void)weights.tensor("lm_head.weight", {3 * 4096, 16384}), std::runtime_error);
  EXPECT_EQ(rounds, 2);
}

TEST(RandomWeights, AreTheSameInRounds) {
  int rounds = 0;
  const RandomWeights whole(1), parted(1, [&] { ++rounds; });
  const Shape shape{300, 1 << 18};
  const Tensor a = whole.tensor("a.weight", shape), b = parted.tensor("a.weight", shape);
  EXPECT_EQ(rounds, 2);
  EXPECT_TRUE(std::ranges::equal(a.values<std::uint16_t>(), b.values<std::uint16_t>()));
}

}  // namespace
}  // namespace foretoken::test

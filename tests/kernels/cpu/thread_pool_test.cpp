#include "kernels/cpu/thread_pool.h"

#include <chrono>
#include <numeric>
#include <stdexcept>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "kernels/error.h"

namespace foretoken {
namespace {

TEST(ThreadPool, every_index_once) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 3000; ++round) {
      const int n = round % 67;
      std::vector<int> met(std::size_t(n), 0);  // not atomic: a second call with the same index would be a data race
      pool.run(n, [&](int i) { ++met[std::size_t(i)]; });
      ASSERT_EQ(std::accumulate(met.begin(), met.end(), 0), n) << "round " << round;
      for (int m : met) ASSERT_EQ(m, 1);
    }
  }
}

TEST(ThreadPool, wakes_after_a_sleep) {
  ThreadPool pool(2);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    int a = 0, b = 0;
    pool.run(2, [&](int k) { (k ? a : b) = 1; });
    EXPECT_EQ(a + b, 2);
  }
}

TEST(ThreadPool, works_on_several_threads) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  pool.run(2, [&](int) {  // ends only if both run at the same time
    ++arrived;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (arrived < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, throws_what_was_thrown_and_goes_on) {
  ThreadPool pool(3);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> done{0};
    EXPECT_THROW(pool.run(20,
                          [&](int i) {
                            if (i == 13) throw std::runtime_error("thirteen");
                            ++done;
                          }),
                 std::runtime_error);
    EXPECT_EQ(done, 19);
  }
  int n = 0;
  pool.run(1, [&](int) { ++n; });
  EXPECT_EQ(n, 1);
}

// By the call that failed: the next one neither throws it again nor leaves anything out.
TEST(ThreadPool, throws_a_failure_once) {
  ThreadPool pool(3);
  const auto failing = [&](const char* why) {
    pool.run(20, [&](int i) {
      if (i % 7 == 3) throw std::runtime_error(why);
    });
  };
  for (const char* why : {"first", "second"}) {
    try {
      failing(why);
      ADD_FAILURE() << "nothing is thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), why);
    }
    std::atomic<int> done{0};
    EXPECT_NO_THROW(pool.run(20, [&](int) { ++done; }));
    EXPECT_EQ(done, 20);
  }
}

// A system that cannot start all threads: an Error, and the started threads end. Not under sanitizers, which need the
// address space.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ThreadPool, says_so_where_threads_are_refused) {
  const auto attempt = [] {
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = rlim_t(2) << 30;  // enough for the stacks of at most 256 threads
    setrlimit(RLIMIT_AS, &limit);
    try {
      ThreadPool pool(2000);
    } catch (const Error& e) {
      _exit(std::string(e.what()).find("threads") == std::string::npos ? 2 : 0);
    }
    _exit(1);
  };
  EXPECT_EXIT(attempt(), ::testing::ExitedWithCode(0), "");
}
#endif

TEST(ThreadPool, calls_from_inside_and_from_other_threads_are_served) {
  ThreadPool pool(2);
  std::atomic<int> sum{0};
  const auto nested = [&] {
    for (int round = 0; round < 200; ++round) pool.run(8, [&](int) { pool.run(3, [&](int) { ++sum; }); });
  };
  std::thread a(nested), b(nested);
  a.join();
  b.join();
  EXPECT_EQ(sum, 2 * 200 * 8 * 3);
}

}  // namespace
}  // namespace foretoken

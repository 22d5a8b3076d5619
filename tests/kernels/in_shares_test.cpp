// Each share is done once, also where the system starts no more threads.
#include "kernels/in_shares.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace foretoken::test {
namespace {

// How often each share was done, and the threads that were started for them.
struct Done {
  explicit Done(std::int64_t shares) : times(std::size_t(shares)) {
    threads = in_shares(shares, [&](std::int64_t s) { ++times[std::size_t(s)]; });
  }
  bool once() const {
    for (const auto& n : times)
      if (n != 1) return false;
    return true;
  }
  std::vector<std::atomic<int>> times;
  std::int64_t threads = 0;
};

TEST(InShares, EachIsDoneOnce) {
  for (const std::int64_t shares : {0, 1, 2, 5, 40}) {
    const Done done(shares);
    EXPECT_TRUE(done.once()) << shares;
    EXPECT_EQ(done.threads, std::max<std::int64_t>(0, shares - 1));
  }
}

TEST(InShares, HaveThreadsOfTheirOwnButTheFirst) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::thread::id first;
  in_shares(4, [&](std::int64_t s) {
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
    if (s == 0) first = std::this_thread::get_id();
  });
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_EQ(first, std::this_thread::get_id());
}

// Not under sanitizers, which need the address space.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(InShares, AreDoneByTheCallerWhereThreadsAreRefused) {
  const auto attempt = [] {
    alarm(60);  // threads that wait for a caller that failed would wait forever
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = rlim_t(2) << 30;  // enough for the stacks of at most 256 threads
    setrlimit(RLIMIT_AS, &limit);
    std::atomic<bool> go = false;
    std::vector<std::atomic<int>> times(2000);
    const std::int64_t threads = in_shares(2000, [&](std::int64_t s) {
      if (s == 0) go = true;
      go.wait(false);  // threads that ended would give their stacks back
      go.notify_all();
      ++times[std::size_t(s)];
    });
    for (const auto& n : times)
      if (n != 1) _exit(2);
    _exit(threads > 0 && threads < 1999 ? 0 : 3);
  };
  EXPECT_EXIT(attempt(), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace foretoken::test

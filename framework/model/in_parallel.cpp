#include "framework/model/in_parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "kernels/in_shares.h"

namespace foretoken {

namespace {

using Work = std::function<void(std::int64_t, std::int64_t)>;

std::atomic<std::int64_t> started = 0;

void one_round(std::int64_t n, std::int64_t work, const Work& f) {
  constexpr std::int64_t kWorth = 1 << 20;  // elements that are worth a thread
  const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::int64_t shares = std::max<std::int64_t>(1, std::min({cores, n, n * work / kWorth + 1}));
  started += in_shares(shares, [&](std::int64_t s) { f(n * s / shares, n * (s + 1) / shares); });
}

}  // namespace

void in_parallel(std::int64_t n, std::int64_t work, const Work& f, const std::function<void()>& between) {
  if (!between) return one_round(n, work, f);
  constexpr std::int64_t kRound = 1 << 26;  // elements
  const std::int64_t most = std::max<std::int64_t>(1, kRound / std::max<std::int64_t>(work, 1));
  for (std::int64_t at = 0; at < n; at += most) {
    between();
    one_round(std::min(most, n - at), work, [&](std::int64_t begin, std::int64_t end) { f(at + begin, at + end); });
  }
}

void by_all_cores(std::int64_t n, std::int64_t work, const std::function<void(std::int64_t, std::int64_t)>& f) {
  in_parallel(n, work, f);
}

std::int64_t threads_started() { return started; }

}  // namespace foretoken

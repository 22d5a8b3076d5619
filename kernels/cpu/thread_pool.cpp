#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include <sched.h>

#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr int kSpins = 4000;  // some tens of microseconds: longer than the pauses between the products of one forward

thread_local bool in_pool = false;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

int index_of(std::uint64_t word) { return int(std::uint32_t(word)); }

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

ThreadPool::ThreadPool(int threads) : shares_(std::size_t(threads > 0 ? threads : usable_cores())) {
  workers_.reserve(shares_.size());
  try {
    for (int i = 1; i < this->threads(); ++i) workers_.emplace_back([this, i] { serve(i); });
  } catch (const std::system_error& e) {
    const std::size_t started = workers_.size();
    close();
    throw Error("the system refused to start more than " + std::to_string(started + 1) + " of " +
                std::to_string(shares_.size()) + " threads (" + e.what() + "); lower \"threads\" of the engine");
  }
}

ThreadPool::~ThreadPool() { close(); }

void ThreadPool::close() {
  closing_.store(true, std::memory_order_relaxed);
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::fork(int n, Call call, const void* body) {
  if (in_pool || !one_caller_.try_lock()) return false;
  std::lock_guard lock(one_caller_, std::adopt_lock);
  const std::uint32_t job = job_.load(std::memory_order_relaxed) + 1;
  for (int t = threads() - 1; t >= 0; --t) {
    Share& share = shares_[std::size_t(t)];
    share.call.store(call, std::memory_order_relaxed);
    share.body.store(body, std::memory_order_relaxed);
    share.end.store(of_job(job, n, t + 1), std::memory_order_relaxed);
    share.next.store(of_job(job, n, t), std::memory_order_release);
  }
  job_.store(job, std::memory_order_release);
  job_.notify_all();
  in_pool = true;
  const int done = work(0, job);
  in_pool = false;
  for (int spins = 0; !others_done(job, n - done); ++spins) spins < kSpins ? relax() : std::this_thread::yield();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return true;
}

// The first index of thread t's share of n, combined with the job's number.
std::uint64_t ThreadPool::of_job(std::uint32_t job, int n, int t) const {
  return std::uint64_t(job) << 32 | std::uint32_t(std::int64_t(n) * t / threads());
}

// Takes indices of `job` from one share until none is left. A thread that takes an index holds the right call and body:
// they are replaced only after every index is done, and then none can be taken.
int ThreadPool::take(Share& share, std::uint32_t job, Call call, const void* body) {
  int done = 0;
  std::uint64_t next = share.next.load(std::memory_order_acquire);
  for (;;) {
    const std::uint64_t end = share.end.load(std::memory_order_relaxed);
    if (next >> 32 != job || end >> 32 != job || index_of(next) >= index_of(end)) return done;
    if (!share.next.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    try {
      call(body, index_of(next));
    } catch (...) {
      std::lock_guard lock(failure_lock_);
      if (!failure_) failure_ = std::current_exception();
    }
    ++done;
    next = share.next.load(std::memory_order_acquire);
  }
}

// Its own share first, then what the others left.
int ThreadPool::work(int self, std::uint32_t job) {
  Share& own = shares_[std::size_t(self)];
  const Call call = own.call.load(std::memory_order_relaxed);
  const void* body = own.body.load(std::memory_order_relaxed);
  int done = 0;
  for (int t = 0; t < threads(); ++t) {
    const int taken = take(shares_[std::size_t((self + t) % threads())], job, call, body);
    done += taken;
    if (taken > 0 && self > 0)
      own.done.store(std::uint64_t(job) << 32 | std::uint32_t(done), std::memory_order_release);
  }
  return done;
}

bool ThreadPool::others_done(std::uint32_t job, int n) const {
  for (std::size_t t = 1; t < shares_.size(); ++t) {
    const std::uint64_t done = shares_[t].done.load(std::memory_order_acquire);
    if (done >> 32 == job) n -= index_of(done);
  }
  return n == 0;
}

void ThreadPool::serve(int self) {
  in_pool = true;
  const Share& share = shares_[std::size_t(self)];
  const auto offered = [&] { return std::uint32_t(share.next.load(std::memory_order_acquire) >> 32); };
  std::uint32_t seen = 0;
  while (!closing_.load(std::memory_order_relaxed)) {
    std::uint32_t job = offered();
    for (int spins = 0; job == seen && spins < kSpins; ++spins) {
      relax();
      job = offered();
    }
    if (job == seen) {
      job_.wait(seen, std::memory_order_acquire);
      continue;
    }
    seen = job;
    work(self, job);
  }
}

}  // namespace foretoken

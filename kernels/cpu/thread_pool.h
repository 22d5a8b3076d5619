// A fork-join pool for operations of a few microseconds: workers spin briefly before they sleep. The caller works too,
// and never waits for a worker that has not begun. This module must not know operations.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace foretoken {

class ThreadPool {
 public:
  // Including the caller; 0: as many as this process may use. More than the system can start is an Error.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return int(shares_.size()); }

  // Calls f(0) ... f(n - 1), each once, in any order and possibly in parallel; returns when all are done. Each thread
  // begins with its own contiguous share (so that data of the last call is still in its cache) and then helps the
  // others. The first exception is rethrown here. A call from inside f, or during another thread's call, runs on the
  // calling thread.
  template <class F> void run(int n, const F& f) {
    if (n <= 0) return;
    if (n == 1 || threads() == 1 || !fork(n, [](const void* body, int i) { (*static_cast<const F*>(body))(i); }, &f))
      for (int i = 0; i < n; ++i) f(i);
  }

 private:
  using Call = void (*)(const void* body, int i);
  // All that a thread needs to begin and to report is in one cache line: a spinning worker receives a job, its share
  // and the function in one transfer, and reports in another. Each word contains the job: job number << 32 | value.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> next{0};  // next index; only a thread that serves this job may take it
    std::atomic<std::uint64_t> end{0};
    std::atomic<std::uint64_t> done{0};  // indices that this thread has done, of any share; written by it alone
    std::atomic<Call> call{nullptr};
    std::atomic<const void*> body{nullptr};
  };

  bool fork(int n, Call call, const void* body);
  std::uint64_t of_job(std::uint32_t job, int n, int t) const;
  int work(int self, std::uint32_t job);  // returns how many indices it did
  int take(Share& share, std::uint32_t job, Call call, const void* body);
  bool others_done(std::uint32_t job, int n) const;
  void serve(int self);
  void close();  // ends the workers

  std::vector<Share> shares_;
  std::vector<std::thread> workers_;
  alignas(64) std::atomic<std::uint32_t> job_{0};  // what workers sleep on
  std::atomic<bool> closing_{false};
  std::mutex one_caller_;
  std::mutex failure_lock_;
  std::exception_ptr failure_;
};

}  // namespace foretoken

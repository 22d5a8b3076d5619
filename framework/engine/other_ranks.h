// The engines of the other ranks of a divided target. An engine of rank 0 leads: what it is asked they are asked too,
// in the same order, each on the thread of its rank. Draws have names and sums over ranks the same bits everywhere, so
// all engines take the same steps and nothing of them is sent. What one of them alone can know (times, what a caller's
// functions return) is rank 0's, and the others learn it (Rank::agree). This module must not know how an engine is
// made.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "framework/components/step_report.h"
#include "framework/engine/scheduler.h"
#include "kernels/rank.h"

namespace foretoken {

class Engine;
struct Request;

// A thread for each rank but 0, which is whoever calls. A device, and all that lies on it, is used on its rank's
// thread.
class RankThreads {
 public:
  explicit RankThreads(int ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;

  const std::shared_ptr<RankGroup>& group() const { return group_; }
  // Queues `task`, with the number of the rank, on every thread. What it throws fails the group.
  void each(const std::function<void(int rank)>& task);
  void wait();  // until all tasks have ended

 private:
  struct Worker {
    std::deque<std::function<void()>> tasks;
    bool busy = false;
    std::thread thread;
  };
  void work(int rank);

  std::shared_ptr<RankGroup> group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Worker> workers_;  // of ranks 1, 2, ...
  bool ending_ = false;
};

class OtherRanks {
 public:
  using Make = std::function<std::unique_ptr<Engine>(int rank)>;
  // Begins to make them, and returns at once, so that rank 0 can make its own meanwhile. After a failure of the ranks
  // they are as good as new.
  OtherRanks(std::shared_ptr<RankThreads> threads, Make make);
  ~OtherRanks();
  // Waits until all were made. An Error where one was not.
  void expect_made();

  // The request without the caller's functions. It is left as rank 0 has to submit it: its stop rule and its on_tokens
  // tell the others what they did.
  void submit(Request& request);
  void each(std::function<void(Engine&)> call);
  // Runs what rank 0 does meanwhile. Where it throws, all that was made together is broken.
  template <class F> auto beside(std::function<void(Engine&)> call, const F& own) {
    expect_unbroken();
    each(std::move(call));
    try {
      return own();
    } catch (...) {
      fail();
      throw;
    }
  }

 private:
  void expect_unbroken() const;
  void fail();  // inside the handler of what rank 0 threw

  std::shared_ptr<RankThreads> threads_;
  std::vector<std::unique_ptr<Engine>> engines_;  // by rank; null: rank 0, and what was not made
  std::string broken_;
};

// An Error on a rank that is to run other rows than rank 0, before the target's forward: its sums would never end.
void expect_alike(const Plan& plan, std::span<const DraftTree> trees, const Rank& rank);
// The times of a step, and what the device counted in it, become those of rank 0, so that what learns from them learns
// the same everywhere. An Error on a rank that drew other tokens than rank 0.
void agree_on_step(StepReport& report, const Rank& rank);

}  // namespace foretoken

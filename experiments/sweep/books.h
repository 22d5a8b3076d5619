// The sums of one measurement over the reports of its steps, and of its requests over theirs: a
// SideRecord but for memory. This module must not know engines or when requests are submitted.
#pragma once
#include <map>
#include <unordered_map>
#include <vector>

#include "experiments/report/statistics.h"
#include "experiments/sweep/measure.h"
#include "experiments/sweep/service.h"
#include "experiments/sweep/step_blocks.h"
#include "experiments/sweep/step_counts.h"
#include "experiments/sweep/stops.h"
#include "framework/cache/kv_cache.h"

namespace foretoken {

class Books {
 public:
  using Clock = Loop::Clock;

  // All must outlive it. `cache`: the target's, after each step.
  Books(const std::vector<Job>& jobs, const Loop& loop, const KvCache& cache);

  // Whether the requests that came first, as many as there are places, have all emitted.
  bool filled() const { return to_start_ == 0; }
  // `arrived`: what its times count from.
  void submitted(std::size_t job, SequenceId id, std::size_t prompt_tokens, Clock::time_point arrived);
  // A turn of a conversation whose turn before failed.
  void follows_failed(std::size_t job);
  // A turn whose conversation has reached the context of so many tokens: it is none of the requests.
  void left_out(std::size_t job, int context);
  std::size_t job_of(SequenceId id) const { return job_of_.at(id); }
  // Nothing was running; it woke up so late for the next arrival.
  void slept(double wall, double late) { idle_seconds_ += wall, stops_.woke(late); }
  // `steady`: all places were taken, by requests of which the first ones had emitted.
  void step(const StepReport& report, double wall, double processor, bool steady);
  std::size_t finished() const { return finished_; }  // requests that ended, failed or were left out
  Measured close(double wall);

 private:
  void add_requests();
  void start(std::size_t job, Clock::time_point now);
  void place(Service& service, const SequenceReport& report, double waited) const;
  void add_round(std::size_t job, const SequenceReport& report, Clock::time_point now, bool steady);
  void end(const Sequence& sequence, Clock::time_point now);
  void add_time(const StepReport& report, bool steady);

  const std::vector<Job>& jobs_;
  const Loop& loop_;
  const KvCache& cache_;
  std::vector<Service> services_;
  std::vector<std::vector<Token>> texts_;
  std::unordered_map<SequenceId, std::size_t> job_of_;
  std::size_t to_submit_ = 0, to_start_ = 0;  // of the requests that first fill the places
  SideRecord record_;
  Stops stops_;
  TimeCounts gaps_;  // between a request's rounds
  SteadyWindow steady_;
  double idle_seconds_ = 0;
  ChildCounts children_;
  NoDraftCounts no_draft_;
  std::map<int, StepsOfRows> steps_of_rows_;
  StepBlocks blocks_;  // of the steady window
  std::size_t finished_ = 0;
};

}  // namespace foretoken

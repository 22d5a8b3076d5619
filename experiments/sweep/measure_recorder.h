// The sums of one measurement over the reports of its steps, and of its requests over theirs: a SideRecord but for
// memory. This module must not know engines or when requests are submitted.
#pragma once
#include <array>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "experiments/report/statistics.h"
#include "experiments/session/engine_requests.h"
#include "experiments/sweep/measure.h"
#include "framework/cache/kv_cache.h"

namespace foretoken {

// Times of steps that do the same, in the order in which they were taken, as medians of blocks: what a change of the
// machine's speed shows in.
class StepBlocks {
 public:
  // A step of so many rows of the target's forward took so long without drafting; its sequences had `context` tokens
  // in all.
  void add(int rows, double seconds, double context) { steps_[rows].push_back({seconds, context}); }

  // Of the number of rows that most steps had, at most 32 blocks of at least eight steps each; the last steps may be
  // left out.
  BlockTimes times() const;

 private:
  struct Step {
    double seconds, context;
  };
  std::map<int, std::vector<Step>> steps_;  // by rows
};

// One more at each of the first `positions` places.
inline void count(std::vector<long>& at, int positions) {
  if (int(at.size()) < positions) at.resize(std::size_t(positions), 0);
  for (int i = 0; i < positions; ++i) ++at[std::size_t(i)];
}

// By level from below the root down, and by place among siblings: how often a child stood there to be tested, and how
// often it was accepted.
struct ChildCounts {
  std::vector<std::vector<long>> offered, accepted;

  void add(const SequenceReport& r) {
    if (offered.size() < r.levels.size()) {
      offered.resize(r.levels.size());
      accepted.resize(r.levels.size());
    }
    for (std::size_t l = 0; l < r.levels.size(); ++l) {
      const TestedLevel& level = r.levels[l];
      count(offered[l], level.children);
      accepted[l].resize(offered[l].size(), 0);
      if (level.accepted >= 0) ++accepted[l][std::size_t(level.accepted)];
    }
  }
};

// Rounds without a draft, by reason.
struct NoDraftCounts {
  std::array<long, std::size_t(NoDraft::count)> rounds{};

  void add(const SequenceReport& r) {
    if (r.no_draft != NoDraft::drafted) ++rounds[std::size_t(r.no_draft)];
  }
  // The reasons that were met.
  std::map<std::string, long> by_reason() const {
    std::map<std::string, long> all;
    for (std::size_t i = 0; i < rounds.size(); ++i)
      if (rounds[i] > 0) all[name_of(NoDraft(i))] = rounds[i];
    return all;
  }
};

// Seconds of all processors that this process used.
double processor_seconds();

// A process that was stopped measures time that was not its own: steps in which it used hardly any processor, for far
// longer than steps take; and sleeps that ended long after they should have. Sleeping itself is no stop.
class Stops {
 public:
  void step(double wall, double processor) { steps_.push_back({wall, processor}); }
  // It was to sleep until an arrival, and woke up so many seconds later.
  void woke(double late);
  // Processors are busy for about the same share of every step: one in which they were for far less was not ours.
  double seconds() const;

 private:
  std::vector<std::pair<double, double>> steps_;
  double overslept_ = 0;
};

// What one request of a measurement got, and when.
struct ServedRequest {
  std::chrono::steady_clock::time_point submitted, first, last, finished;
  RequestRecord record;  // without the seconds that follow from these times
  long from_cache = 0;   // prompt tokens that its first reading found in the cache
  bool placed = false, started = false;
  bool left_out = false;  // it never began: its conversation had reached the context
  bool fills = false;     // it is one of those that first fill the slots
};

class MeasureRecorder {
 public:
  using Clock = Loop::Clock;

  // All but `jobs` must outlive it. `cache`: the target's, after each step; `served`: the jobs of requests.
  MeasureRecorder(const std::vector<Job>& jobs, const Loop& loop, const KvCache& cache,
                  const EngineRequests<std::size_t>& served);

  // Whether the requests that came first, as many as there are slots, have all emitted.
  bool filled() const { return to_start_ == 0; }
  // `arrived`: what its times count from.
  void submitted(std::size_t job, std::size_t prompt_tokens, Clock::time_point arrived);
  // A turn of a conversation whose turn before failed.
  void follows_failed(std::size_t job);
  // A turn whose conversation has reached the context of so many tokens: it is none of the requests.
  void left_out(std::size_t job, int context);
  // Nothing was running; it woke up so late for the next arrival.
  void slept(double wall, double late) {
    idle_seconds_ += wall;
    stops_.woke(late);
  }
  // `steady`: all slots were taken, by requests of which the first ones had emitted.
  void step(const StepReport& report, double wall, double processor, bool steady);
  std::size_t finished() const { return finished_; }  // requests that ended, failed or were left out
  Measured close(double wall);

 private:
  void add_requests();
  void start(std::size_t job, Clock::time_point now);
  void place(ServedRequest& service, const SequenceReport& report, double waited) const;
  void add_round(std::size_t job, const SequenceReport& report, Clock::time_point now, bool steady);
  void end(const Sequence& sequence, Clock::time_point now);
  void add_time(const StepReport& report, bool steady);

  const Loop& loop_;
  const KvCache& cache_;
  std::vector<ServedRequest> services_;
  std::vector<std::vector<Token>> outputs_;
  const EngineRequests<std::size_t>& served_;
  std::size_t to_submit_ = 0, to_start_ = 0;  // of the requests that first fill the slots
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

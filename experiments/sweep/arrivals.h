// When requests start. Closed loop: one arrives when a slot of the batch is free. Open loop: at times of their own,
// whether or not the engine keeps up. Those of a prompt's later turns can start only once the turn before has been
// answered. This module must not know engines or how requests are measured.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/session/arrival_rate.h"
#include "framework/engine/engine.h"

namespace foretoken {

inline double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return seconds(std::chrono::steady_clock::now() - start);
}

// `count` times in seconds, the first 0, of a Poisson process of this rate: gaps between the numbers of requests that
// are expected until an arrival and the next are exponential, drawn by their names, seed, alternation and request. So
// all drafters, lengths and baselines of a comparison meet the same arrivals, at another rate the same gaps in
// proportion, and each alternation other ones.
std::vector<double> poisson_arrivals(const ArrivalRate& rate, std::size_t count, std::uint64_t seed, int alternation);

class Loop {
 public:
  using Clock = std::chrono::steady_clock;

  // Closed loop: as many requests as there are `slots`.
  Loop(int slots) : slots_(slots) {}
  // Open loop: request i arrives so many seconds after the first one.
  Loop(int slots, std::vector<double> arrivals) : slots_(slots), arrivals_(std::move(arrivals)) {}

  int slots() const { return slots_; }
  bool open() const { return !arrivals_.empty(); }
  // Of an open loop, after the first one.
  Clock::duration arrival(std::size_t request) const {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(arrivals_.at(request)));
  }
  // Whether the next request, number `submitted` from 0, is there so long after the first one.
  bool due(std::size_t submitted, std::size_t finished, Clock::duration since) const {
    return open() ? arrival(submitted) <= since : submitted - finished < std::size_t(slots_);
  }

 private:
  int slots_;
  std::vector<double> arrivals_;
};

// The loop of an alternation of a complete run: open where it has a rate, or rates.
Loop loop_of(const nlohmann::json& run, std::size_t requests, int alternation);

// Sleeps until then; `meanwhile` is called twenty times a second and may throw to stop.
void sleep_until(Loop::Clock::time_point then, const std::function<void()>& meanwhile);

struct Job {
  Request request;
  int prompt = 0;        // number of the prompt
  std::string category;  // empty: none
  int first = -1;        // the job of which this one is another sample; -1: none
  int turn = 0;          // of a conversation, from 0
  int after = -1;        // the job whose output this one goes on from: the prompt of the request is only what follows
                         // that output; -1: none
};

// Which requests of a run can start.
class Conversations {
 public:
  // `jobs` must outlive it; a job comes after the job that it goes on from.
  explicit Conversations(const std::vector<Job>& jobs);

  // Whether a request can start now.
  bool ready() const { return !ready_.empty(); }
  // The next request to start. Those that go on with a conversation come first, then the others, in their order.
  std::size_t next();
  // The prompt of a job that next() returned: of a later turn, the prompt and the output of the turn before, without
  // the stop token that ended it, and then the job's own tokens.
  std::vector<Token> prompt(std::size_t job) const;
  // A job that next() returned and that does not start, and the turns after it.
  std::vector<std::size_t> from(std::size_t job) const;
  // The job's request has ended. Returns the jobs that never start because it failed: the turns after it.
  std::vector<std::size_t> ended(std::size_t job, const Sequence& sequence);

 private:
  const std::vector<Job>& jobs_;
  std::vector<std::vector<std::size_t>> followers_;  // of each job
  std::vector<std::vector<Token>> said_;             // of each job that has followers, once it has ended
  std::deque<std::size_t> ready_;
};

}  // namespace foretoken

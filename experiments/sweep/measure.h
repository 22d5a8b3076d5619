// Serves one workload with one engine and records one side of a result line. In a closed loop a request arrives when
// another ends, so latencies include no queueing; in an open loop it arrives at a time of its own, from which its
// latencies count, and time in which nothing runs is idle. The turns of a conversation follow one another; those
// for which the model's context has no room are left out, and named. Two windows are measured: end to end, and steady,
// while all slots are taken, from when the first requests have all emitted. What the drafter has to say
// (Drafter::notice) stands under "notice"; the caller tells the user, who is not to hear of every warm-up.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/report/result.h"
#include "experiments/sweep/arrivals.h"
#include "framework/engine/engine.h"

namespace foretoken {

struct Measured {
  SideRecord record;
  std::vector<std::vector<Token>> outputs;  // generated tokens, in the order of the jobs
  std::vector<std::string> failures;  // why a job has no output: it failed, or its turn was left out; empty: it has
};

// The memory of an engine while it serves.
class EngineMemory {
 public:
  // From now on; one engine of a device at a time. `engine` must outlive it.
  explicit EngineMemory(Engine& engine);

  void step(const StepReport& report);
  // Weights with embeddings, each model once and the target's not as a draft's. Scratch: the most that steps held
  // besides (activations, those of replayed forwards too; logits and features, also such as a model kept from an
  // earlier engine; distributions).
  MemoryUsed figures() const;

 private:
  std::int64_t draft_weights() const;
  std::int64_t states_per_token() const;
  std::int64_t output_bytes() const;

  Engine& engine_;
  std::int64_t before_;  // that the device held
  std::int64_t kept_;    // of these for logits and features
  int most_pages_ = 0;
};

// `loop`: how many requests run at once, and when they arrive. `after_step` is called with the share of jobs that are
// done; it may throw to stop.
// `watch` is called with the report of every step.
Measured measure(
    Engine& engine, const std::vector<Job>& jobs, const Loop& loop, const std::function<void(double)>& after_step,
    const std::function<void(const StepReport&)>& watch = [](const StepReport&) {});

// Which measurements count: those that were made again say why, and alternations are compared.

// Hashes by which outputs are compared, of each request; none where it failed.
using HashedOutputs = std::vector<std::optional<std::uint64_t>>;
HashedOutputs outputs_of(const Measured& measured);

// One hash of all of these, in the order of prompts, samples and turns; with the failed ones.
std::string hash_of_outputs(const HashedOutputs& outputs);

// Adds outputs that were compared, and that differ. A request that failed on one side is not compared.
void compare_outputs(const HashedOutputs& a, const HashedOutputs& b, Agreement& agreement);

// A measurement that counts, and those before it that do not, whose outputs were compared with its.
struct Taken {
  Measured measured;
  std::vector<ThrownAway> thrown_away = {};  // their side and alternation are not known here
};
// Measures again, after again(), where the process was stopped for more than 2 % of the time. Stopped in each of three
// measurements is an Error. Where `any` is true, the first counts, whatever was stopped.
Taken measure_kept(const std::function<Measured()>& measure, const std::function<void()>& again, bool any = false);

// One side of an alternation.
struct MeasuredSide {
  SideRecord record;
  HashedOutputs outputs;
  std::vector<ThrownAway> thrown_away;
};

// The numbers of the jobs that a record leaves out, whose requests it lacks.
std::set<std::size_t> left_out_of(const SideRecord& record);

// Whether all alternations of a side did the same: its requests have equal counts of tokens, rounds and drafts, and
// equal outputs, since their draws are equal; what learns is not compared.
class SameAgain {
 public:
  explicit SameAgain(bool compared) : found_{.compared = compared, .differing = {}} {}
  // Alternation number `repeat` of a side.
  void add(const MeasuredSide& measured, const std::string& side, int repeat);
  const Reproduced& found() const { return found_; }

 private:
  struct First {
    std::vector<std::vector<long>> counts;  // of each job; empty where it was left out
    HashedOutputs outputs;
  };
  Reproduced found_;
  std::map<std::string, First> first_;  // by side
};

}  // namespace foretoken

// Which measurements count: those that were made again say why, and alternations are compared. This module must not
// know runs or engines.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/sweep/measure.h"

namespace foretoken {

// Hashes by which outputs are compared, of each request; none where it failed.
using Outputs = std::vector<std::optional<std::uint64_t>>;
Outputs outputs_of(const Measured& measured);

// One hash of all of these, in the order of prompts, samples and turns; with the failed ones.
std::string hash_of_outputs(const Outputs& outputs);

// Adds outputs that were compared, and that differ. A request that failed on one side is not compared.
void compare_outputs(const Outputs& a, const Outputs& b, Agreement& agreement);

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
  Outputs outputs;
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
    Outputs outputs;
  };
  Reproduced found_;
  std::map<std::string, First> first_;  // by side
};

}  // namespace foretoken

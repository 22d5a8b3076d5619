// How long a step takes, from the steps of traces: of the target by the rows of its forward, of drafting by levels, at
// the batch of the trace. This module must not know what is accepted.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "experiments/trace/trace.h"

namespace foretoken {

// Medians of measured times by a whole number, straight lines between them, an Error outside.
class TimesBy {
 public:
  // `what` of messages: "rows"
  explicit TimesBy(std::string what) : what_(std::move(what)) {}
  void add(int number, double seconds) { measured_[number].push_back(seconds), medians_.clear(); }
  bool empty() const { return measured_.empty(); }
  double at(int number) const;
  // |measured - at()| / at(), of every measurement.
  std::vector<double> errors() const;

 private:
  const std::map<int, double>& medians() const;

  std::string what_;
  std::map<int, std::vector<double>> measured_;
  mutable std::map<int, double> medians_;  // of `measured_`; empty: to be computed
};

class CostTable {
 public:
  // Takes those steps of a trace in which as many sequences ran as its batch, and no prompt was read.
  explicit CostTable(const Trace& trace);
  // Those of another trace, too. One of another target, drafter, device or batch is an Error that names `file`.
  void add(const Trace& other, const std::string& file);

  // Seconds of a step in which every sequence of the batch has a tree of `rows` nodes and `depth` levels. One outside
  // of what was measured is an Error, since times are not extrapolated.
  double round(int rows, int depth) const;
  // Of a step of plain decoding.
  double plain() const;
  // The median relative deviation of a measured step from the table.
  double error() const;
  std::size_t steps() const { return steps_; }

 private:
  void take(const Trace& trace);

  nlohmann::json origin_;  // what traces must have in common
  int batch_;
  TimesBy target_{"rows"}, draft_{"levels"}, plain_{"sequences"};
  std::size_t steps_ = 0;
};

}  // namespace foretoken

// How often which time was measured, in bins that are 1 % wide: quantiles of many times, kept in few numbers, and of
// several measurements together. This module must not know which times these are.
#pragma once
#include <map>
#include <utility>

namespace foretoken {

class TimeCounts {
 public:
  TimeCounts() = default;
  explicit TimeCounts(std::map<int, long> by_bin) : times_(std::move(by_bin)) {}
  // Seconds; what is not above 0 counts as a microsecond.
  void add(double seconds, long times = 1);
  TimeCounts& operator+=(const TimeCounts& other);
  long total() const;
  // The time below which this share of the times lies, within 1 %; NaN where there are none.
  double quantile(double share) const;

  const std::map<int, long>& by_bin() const { return times_; }

 private:
  std::map<int, long> times_;  // bin b begins at 1.01^b microseconds
};

}  // namespace foretoken

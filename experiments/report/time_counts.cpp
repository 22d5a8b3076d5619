#include "experiments/report/time_counts.h"

#include <algorithm>
#include <cmath>

#include "experiments/report/divide.h"

namespace foretoken {

namespace {

constexpr double kStep = 1.01, kUnit = 1e-6;

double begin_of(int bin) { return kUnit * std::pow(kStep, bin); }

}  // namespace

void TimeCounts::add(double seconds, long times) {
  times_[int(std::floor(std::log(std::max(seconds, kUnit) / kUnit) / std::log(kStep)))] += times;
}

TimeCounts& TimeCounts::operator+=(const TimeCounts& other) {
  for (const auto& [bin, times] : other.times_) times_[bin] += times;
  return *this;
}

long TimeCounts::total() const {
  long all = 0;
  for (const auto& [bin, times] : times_) all += times;
  return all;
}

double TimeCounts::quantile(double share) const {
  const double wanted = share * double(total());
  long seen = 0;
  for (const auto& [bin, times] : times_) {
    seen += times;
    if (seen >= wanted) return std::sqrt(begin_of(bin) * begin_of(bin + 1));
  }
  return kUnknown;
}

}  // namespace foretoken

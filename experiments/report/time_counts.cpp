#include "experiments/report/time_counts.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "experiments/report/divide.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

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

json TimeCounts::as_json() const {
  json found = json::object();
  for (const auto& [bin, times] : times_) found[std::to_string(bin)] = times;
  return found;
}

TimeCounts TimeCounts::of(const json& counts) {
  if (!counts.is_object()) throw Error("times are no object of bins");
  TimeCounts found;
  for (const auto& [key, times] : counts.items()) {
    int bin = 0;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), bin);
    if (read.ec != std::errc() || read.ptr != key.data() + key.size() || !times.is_number_integer() ||
        times.get<long>() < 0)
      throw Error("a bin of times '" + key + "' is no number with a count");
    found.times_[bin] += times.get<long>();
  }
  return found;
}

}  // namespace foretoken

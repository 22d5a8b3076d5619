// When requests arrive. Closed loop: one arrives when a place is free. Open loop: at times of their own, whether or not
// the engine keeps up. This module must not know engines.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken {

// `count` times in seconds, the first 0, of a Poisson process of `rate` arrivals per second: gaps are exponential,
// drawn by their names, seed, alternation and request. So all drafters, lengths and baselines of a comparison meet the
// same arrivals, at another rate the same gaps in proportion, and each alternation other ones.
std::vector<double> poisson_arrivals(double rate, std::size_t count, std::uint64_t seed, int alternation);

class Loop {
 public:
  using Clock = std::chrono::steady_clock;

  // Closed loop: as many requests as there are `places`.
  Loop(int places) : places_(places) {}
  // Open loop: request i arrives so many seconds after the first one.
  Loop(int places, std::vector<double> arrivals) : places_(places), arrivals_(std::move(arrivals)) {}

  int places() const { return places_; }
  bool open() const { return !arrivals_.empty(); }
  // Of an open loop, after the first one.
  Clock::duration arrival(std::size_t request) const {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(arrivals_.at(request)));
  }
  // Whether the next request, number `submitted` from 0, is there so long after the first one.
  bool due(std::size_t submitted, std::size_t finished, Clock::duration since) const {
    return open() ? arrival(submitted) <= since : submitted - finished < std::size_t(places_);
  }

 private:
  int places_;
  std::vector<double> arrivals_;
};

// The loop of an alternation of a complete run: open where it has a /workload/rate.
Loop loop_of(const nlohmann::json& run, std::size_t requests, int alternation);

// Sleeps until then; `meanwhile` is called twenty times a second and may throw to stop.
void sleep_until(Loop::Clock::time_point then, const std::function<void()>& meanwhile);

}  // namespace foretoken

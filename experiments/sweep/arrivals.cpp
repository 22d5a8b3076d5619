#include "experiments/sweep/arrivals.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "experiments/report/summary.h"
#include "kernels/philox.h"

namespace foretoken {

using nlohmann::json;

std::vector<double> poisson_arrivals(double rate, std::size_t count, std::uint64_t seed, int alternation) {
  // Draws of tokens with the same seed have their role in the upper three bits of the last word, and no role is 7.
  constexpr std::uint32_t kArrival = 7u << 29;
  static_assert(std::uint32_t(Role::noise) < kArrival >> 29);
  std::vector<double> times;
  for (std::size_t i = 0; i < count; ++i) {
    const Philox drawn = philox4x32_10(std::uint32_t(i), std::uint32_t(alternation), 0, kArrival, std::uint32_t(seed),
                                       std::uint32_t(seed >> 32));
    times.push_back(i == 0 ? 0 : times.back() - std::log(Draws::uniform_from(drawn.word[0])) / rate);
  }
  return times;
}

Loop loop_of(const json& run, std::size_t requests, int alternation) {
  const int places = run.at("engine").at("batch");
  const auto rate = rate_of(run);
  if (!rate) return Loop(places);
  return Loop(places, poisson_arrivals(*rate, requests, run.at("sampling").at("seed"), alternation));
}

void sleep_until(Loop::Clock::time_point then, const std::function<void()>& meanwhile) {
  constexpr std::chrono::milliseconds kPart(50);
  for (auto now = Loop::Clock::now(); now < then; now = Loop::Clock::now()) {
    std::this_thread::sleep_until(std::min(then, now + kPart));
    meanwhile();
  }
}

}  // namespace foretoken

#include "experiments/report/throughput.h"

#include <algorithm>
#include <cmath>

#include "experiments/report/divide.h"
#include "experiments/report/levels.h"
#include "experiments/report/places.h"
#include "kernels/philox.h"

namespace foretoken {
namespace {

constexpr double kNormal = 1e6;  // degrees of freedom of a deviation whose law is known

// How long each request kept its place.
std::vector<double> stays_of(const ServedQueue& queue, std::size_t places) {
  Places all(places);
  std::vector<double> found;
  for (const auto& [arrival, end] : queue.requests) {
    found.push_back(std::max(0.0, end - all.start(arrival)));
    all.keep(end);
  }
  return found;
}

// Seconds until the last request ended, if they arrive after these gaps.
double seconds_with(const std::vector<double>& gaps, const std::vector<double>& stays, std::size_t places) {
  Places all(places);
  double arrival = 0;
  for (std::size_t i = 0; i < stays.size(); ++i) {
    if (i > 0) arrival += gaps[i - 1];
    all.keep(all.start(arrival) + stays[i]);
  }
  return all.last();
}

// Exponential ones of a resample. Alternations share them, so that those of equal stays have equal expected seconds.
std::vector<double> gaps_of(int resample, std::size_t requests, double rate) {
  std::vector<double> found;
  for (std::uint32_t i = 0; found.size() < requests; ++i) {
    const Philox drawn = philox4x32_10(i, std::uint32_t(resample), 0, 0, 0x61727269u, 0x76616c73u);
    for (const std::uint32_t word : drawn.word) found.push_back(-std::log((word + 0.5) / 4294967296.0) / rate);
  }
  return found;
}

// Seconds of every alternation with other arrivals, [alternations][kResamples].
std::vector<std::vector<double>> served_again(std::span<const ServedQueue> alternations, double rate, int places) {
  std::size_t requests = 1;
  for (const ServedQueue& a : alternations) requests = std::max(requests, a.requests.size());
  const std::size_t used = std::min(std::size_t(places), requests);
  std::vector<std::vector<double>> stays, found(alternations.size());
  for (const ServedQueue& a : alternations) stays.push_back(stays_of(a, used));
  for (int b = 0; b < kResamples; ++b) {
    const std::vector<double> gaps = gaps_of(b, requests, rate);
    for (std::size_t k = 0; k < stays.size(); ++k) found[k].push_back(seconds_with(gaps, stays[k], used));
  }
  return found;
}

// Logarithms of the resamples' total seconds over the expected ones. The alternations of one resample have arrivals of
// their own.
std::vector<double> arrival_deviations(const std::vector<std::vector<double>>& again, double expected) {
  const std::size_t apart = std::max<std::size_t>(1, kResamples / again.size());
  std::vector<double> found;
  for (std::size_t b = 0; b < kResamples; ++b) {
    double sum = 0;
    for (std::size_t k = 0; k < again.size(); ++k) sum += again[k][(b + k * apart) % kResamples];
    found.push_back(std::log(sum / expected));
  }
  return found;
}

}  // namespace

Interval throughput_interval(std::span<const ServedQueue> alternations, double rate, int places) {
  double tokens = 0, seconds = 0, expected = 0;
  for (const ServedQueue& a : alternations) tokens += a.tokens, seconds += a.seconds;
  const Interval alone{divide(tokens, seconds), kUnknown, kUnknown};
  const auto told = [](const ServedQueue& a) {
    return a.tokens > 0 && std::ranges::any_of(a.requests, [](const auto& r) { return r.end > 0; });
  };
  if (alternations.size() < 2 || !std::ranges::all_of(alternations, told)) return alone;
  const std::vector<std::vector<double>> again = served_again(alternations, rate, places);
  std::vector<double> rates;
  for (std::size_t k = 0; k < again.size(); ++k) {
    const double seconds_of_one = mean(again[k]);
    rates.push_back(std::log(alternations[k].tokens / seconds_of_one)), expected += seconds_of_one;
  }
  const Level machine{std::sqrt(mean_variance(rates)), double(rates.size()) - 1};
  const auto [low, high] = spread(arrival_deviations(again, expected));
  const auto half = [&](double deviation) {
    return half_width({std::max(0.0, deviation) / normal(), kNormal}, machine);
  };
  return {alone.value, alone.value * std::exp(-half(-low)), alone.value * std::exp(half(high))};
}

}  // namespace foretoken

#include "experiments/report/experiment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "experiments/report/statistics.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace foretoken {
namespace {

// Of one alternation; false where it has other requests than those before, or one that failed.
bool add_alternation(const SideRecord& measured, double weight, bool first, std::vector<ClosedLoop::Request>& all) {
  std::size_t count = 0;
  std::map<int, std::size_t> last;  // of each prompt
  for (const RequestRecord& r : measured.requests) {
    const bool goes_on = r.turn > 0;
    if (r.failed() || (goes_on && !last.contains(r.prompt))) return false;
    const std::size_t at = goes_on ? last[r.prompt] : count++;
    last[r.prompt] = at;
    if (first && !goes_on) all.push_back({r.prompt});
    if (at >= all.size() || all[at].prompt != r.prompt) return false;
    all[at].rounds += weight * double(r.rounds);
    all[at].rows += weight * double(r.rounds) + weight * double(r.drafted);
    all[at].tokens += weight * double(r.tokens);
    all[at].prompt_tokens += weight * double(r.prompt_tokens);
    all[at].seconds += weight * r.seconds;
  }
  return count == all.size();
}

using Costs = std::array<double, 3>;  // of steps, rows, prompt tokens

// Least squares without negative terms: of every choice of terms that are not 0, the best whose terms are positive.
class LeastSquares {
 public:
  void add(const Costs& x, double y) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      right_[i] += x[i] * y;
      for (std::size_t j = 0; j < x.size(); ++j) left_[i][j] += x[i] * x[j];
    }
  }
  Costs solution() const {
    Costs best{};
    double most = 0;  // of the squares that a choice explains
    for (unsigned chosen = 1; chosen < 1u << best.size(); ++chosen) {
      const Costs found = with(chosen);
      double explained = 0;
      for (std::size_t i = 0; i < found.size(); ++i) explained += found[i] * right_[i];
      if (std::ranges::all_of(found, [](double x) { return x >= 0; }) && explained > most)
        best = found, most = explained;
    }
    return best;
  }

 private:
  // The normal equations of these terms by elimination; a term that follows from those before it is 0.
  Costs with(unsigned chosen) const {
    constexpr double kProportional = 1e-9;
    std::array<Costs, 3> left = left_;
    Costs right = right_, found{};
    const std::size_t n = found.size();
    for (std::size_t i = 0; i < n; ++i) {
      if (!(left[i][i] > kProportional * left_[i][i])) chosen &= ~(1u << i);
      if (!(chosen >> i & 1)) continue;
      for (std::size_t j = i + 1; j < n; ++j) {
        const double factor = left[j][i] / left[i][i];
        for (std::size_t k = i; k < n; ++k) left[j][k] -= factor * left[i][k];
        right[j] -= factor * right[i];
      }
    }
    for (std::size_t i = n; i-- > 0;) {
      if (!(chosen >> i & 1)) continue;
      found[i] = right[i];
      for (std::size_t j = i + 1; j < n; ++j) found[i] -= left[i][j] * found[j];
      found[i] /= left[i][i];
    }
    return found;
  }

  std::array<Costs, 3> left_{};
  Costs right_{};
};

// Sets what steps cost, and returns how many the queue takes.
std::size_t fit(ClosedLoop& loop) {
  Slots slots(loop.slots);
  std::vector<std::pair<std::size_t, std::size_t>> stays;
  std::vector<Costs> until(1);  // of all steps before
  for (const ClosedLoop::Request& r : loop.requests) {
    const double start = slots.start(0);
    slots.keep(start + std::max(1.0, std::round(r.rounds)));
    const std::size_t begin = std::size_t(start), end = begin + std::size_t(std::max(1.0, std::round(r.rounds)));
    stays.push_back({begin, end});
    if (until.size() <= end) until.resize(end + 1);
    until[begin + 1][2] += r.prompt_tokens;
    for (std::size_t step = begin; step < end; ++step) until[step + 1][1] += r.rows / double(end - begin);
  }
  for (std::size_t step = 1; step < until.size(); ++step) {
    until[step][0] = double(step);
    for (std::size_t i : {1, 2}) until[step][i] += until[step - 1][i];
  }
  LeastSquares squares;
  for (std::size_t k = 0; k < stays.size(); ++k) {
    Costs met;
    for (std::size_t i = 0; i < met.size(); ++i) met[i] = until[stays[k].second][i] - until[stays[k].first][i];
    squares.add(met, loop.requests[k].seconds);
  }
  const auto [step, row, prompt_token] = squares.solution();
  loop.step = step, loop.row = row, loop.prompt_token = prompt_token;
  return until.size() - 1;
}

// Which request stands where one of another prompt stood: of several with one prompt as many come before it.
class Replacements {
 public:
  explicit Replacements(const std::vector<ClosedLoop::Request>& requests) {
    std::map<int, std::vector<std::size_t>> of_number;
    for (std::size_t i = 0; i < requests.size(); ++i) of_number[requests[i].prompt].push_back(i);
    prompt_.resize(requests.size()), before_.resize(requests.size());
    for (const auto& [number, own] : of_number) {
      for (std::size_t k = 0; k < own.size(); ++k) prompt_[own[k]] = of_prompt_.size(), before_[own[k]] = k;
      of_prompt_.push_back(own);
    }
  }
  void draw(int resample, std::vector<std::size_t>& chosen) const {
    for (std::size_t i = 0; i < prompt_.size(); ++i) {
      const std::vector<std::size_t>& own =
          of_prompt_[std::size_t(resampled_prompt(resample, int(prompt_[i]), int(of_prompt_.size())))];
      chosen[i] = own[before_[i] % own.size()];
    }
  }

 private:
  std::vector<std::vector<std::size_t>> of_prompt_;
  std::vector<std::size_t> prompt_, before_;  // of each request
};

// Of one resample.
struct Run {
  double tokens = 0, seconds = 0, steady_tokens = 0, steady_seconds = 0;
};

Run run(const ClosedLoop& loop, const std::vector<std::size_t>& chosen, std::vector<double>& starts) {
  Slots slots(loop.slots);
  Run found;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const ClosedLoop::Request& r = loop.requests[chosen[i]];
    starts[i] = slots.start(0);
    slots.keep(starts[i] + r.rounds);
    found.tokens += r.tokens, found.seconds += loop.row * r.rows + loop.prompt_token * r.prompt_tokens;
  }
  found.seconds += loop.step * slots.last();
  const double begin = 1, end = slots.start(0);  // after the first round of those that came first; a slot is free
  if (chosen.size() < std::size_t(loop.slots) || end <= begin) return found;
  found.steady_seconds = loop.step * (end - begin);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const ClosedLoop::Request& r = loop.requests[chosen[i]];
    const double inside = std::min(starts[i] + r.rounds, end) - std::max(starts[i], begin);
    const double share = std::max(0.0, inside / r.rounds);
    found.steady_tokens += share * r.tokens, found.steady_seconds += share * loop.row * r.rows;
    if (starts[i] > 0) found.steady_seconds += loop.prompt_token * r.prompt_tokens;
  }
  return found;
}

// Less the logarithm of the ratio of all.
std::vector<double> from_the_whole(const std::vector<Run>& runs, double Run::* tokens, double Run::* seconds) {
  double all_tokens = 0, all_seconds = 0;
  for (const Run& r : runs) all_tokens += r.*tokens, all_seconds += r.*seconds;
  std::vector<double> found;
  for (const Run& r : runs)
    found.push_back(r.*seconds > 0 ? std::log(r.*tokens / r.*seconds) - std::log(all_tokens / all_seconds) : kUnknown);
  return found;
}

constexpr double kNormal = 1e6;  // degrees of freedom of a deviation whose law is known

// How long each request kept its slot.
std::vector<double> stays_of(const ServedQueue& queue, std::size_t slots) {
  Slots all(slots);
  std::vector<double> found;
  for (const auto& [arrival, end] : queue.requests) {
    found.push_back(std::max(0.0, end - all.start(arrival)));
    all.keep(end);
  }
  return found;
}

// Seconds until the last request ended, if they arrive at these times.
double seconds_with(const std::vector<double>& arrivals, const std::vector<double>& stays, std::size_t slots) {
  Slots all(slots);
  for (std::size_t i = 0; i < stays.size(); ++i) all.keep(all.start(arrivals[i]) + stays[i]);
  return all.last();
}

// Of a resample, the first at 0. Alternations share them, so that those of equal stays have equal expected seconds.
std::vector<double> arrivals_of(int resample, std::size_t requests, const ArrivalRate& rate) {
  std::vector<double> found{0};
  double expected = 0;
  for (std::uint32_t i = 0; found.size() < requests; ++i) {
    const Philox drawn = philox4x32_10(i, std::uint32_t(resample), 0, 0, 0x61727269u, 0x76616c73u);
    for (const std::uint32_t word : drawn.word) {
      expected -= std::log((word + 0.5) / 4294967296.0);
      found.push_back(rate.when(expected));
    }
  }
  return found;
}

// Seconds of every alternation with other arrivals, [alternations][kResamples].
std::vector<std::vector<double>> served_again(std::span<const ServedQueue> alternations, const ArrivalRate& rate,
                                              int slots) {
  std::size_t requests = 1;
  for (const ServedQueue& a : alternations) requests = std::max(requests, a.requests.size());
  const std::size_t used = std::min(std::size_t(slots), requests);
  std::vector<std::vector<double>> stays, found(alternations.size());
  for (const ServedQueue& a : alternations) stays.push_back(stays_of(a, used));
  for (int b = 0; b < kResamples; ++b) {
    const std::vector<double> arrivals = arrivals_of(b, requests, rate);
    for (std::size_t k = 0; k < stays.size(); ++k) found[k].push_back(seconds_with(arrivals, stays[k], used));
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

// Adds an array, element by element, where the request has it.
void add_counts(const std::optional<std::vector<long>>& found, std::vector<double>& sums) {
  if (!found) return;
  if (found->size() > sums.size()) sums.resize(found->size());
  for (std::size_t i = 0; i < found->size(); ++i) sums[i] += double((*found)[i]);
}

void add_requests(const SideRecord& measured, int repeat, Prompts& side, Experiment& e) {
  double shares = 0;
  for (const RequestRecord& request : measured.requests) {
    Served& served = side.try_emplace(request.prompt, e.repeats).first->second[std::size_t(repeat)];
    served.tokens += double(request.tokens);
    served.seconds += request.share_seconds;
    served.rounds += double(request.rounds);
    served.drafted += double(request.drafted);
    served.tested += double(request.tested);
    served.accepted += double(request.accepted);
    served.decode_tokens += double(request.decode_tokens());
    served.decode_seconds += request.decode_seconds;
    served.steady_tokens += request.steady_tokens ? double(*request.steady_tokens) : kUnknown;
    served.steady_seconds += request.steady_seconds.value_or(kUnknown);
    add_counts(request.tested_at, served.tested_at);
    add_counts(request.accepted_at, served.accepted_at);
    shares += request.share_seconds;
    if (request.category) e.category[request.prompt] = *request.category;
    if (request.failed()) e.failed.insert(request.prompt);
  }
  const double seconds = measured.seconds, idle = measured.idle_seconds.value_or(0);
  if (std::abs(shares + idle - seconds) > 0.01 * seconds + 1e-6)
    throw Error("the requests' shares of the time add up to " + std::to_string(shares) + " s, not to the " +
                std::to_string(seconds) + " s measured" +
                (idle > 0 ? ", of which " + std::to_string(idle) + " s were idle" : ""));
}

}  // namespace

std::optional<ClosedLoop> closed_loop_of(const std::vector<Alternation>& repeats, SideOf side, int slots) {
  constexpr double kMostOff = 0.2;  // of the steps measured
  ClosedLoop loop;
  loop.slots = slots;
  double steps = 0;
  for (std::size_t r = 0; r < repeats.size(); ++r) {
    const SideRecord& measured = repeats[r].*side;
    if (!add_alternation(measured, 1 / double(repeats.size()), r == 0, loop.requests)) return std::nullopt;
    steps += double(measured.steps) / double(repeats.size());
  }
  for (const ClosedLoop::Request& r : loop.requests)
    if (!(r.rounds > 0 && r.tokens > 0) || r.rounds > (1 + kMostOff) * steps) return std::nullopt;
  if (loop.requests.empty() || std::abs(double(fit(loop)) - steps) > kMostOff * steps) return std::nullopt;
  if (!(loop.step + loop.row + loop.prompt_token > 0)) return std::nullopt;
  return loop;
}

ServedAgain served_again(const ClosedLoop& loop) {
  const Replacements replacements(loop.requests);
  std::vector<std::size_t> chosen(loop.requests.size());
  std::vector<double> starts(loop.requests.size());
  std::vector<Run> runs;
  for (int b = 0; b < kResamples; ++b) {
    replacements.draw(b, chosen);
    runs.push_back(run(loop, chosen, starts));
  }
  return {from_the_whole(runs, &Run::tokens, &Run::seconds),
          from_the_whole(runs, &Run::steady_tokens, &Run::steady_seconds)};
}

Interval throughput_interval(std::span<const ServedQueue> alternations, const ArrivalRate& rate, int slots) {
  double tokens = 0, seconds = 0, expected = 0;
  for (const ServedQueue& a : alternations) tokens += a.tokens, seconds += a.seconds;
  const Interval alone = Interval::of(divide(tokens, seconds));
  const auto told = [](const ServedQueue& a) {
    return a.tokens > 0 && std::ranges::any_of(a.requests, [](const auto& r) { return r.end > 0; });
  };
  if (alternations.size() < 2 || !std::ranges::all_of(alternations, told)) return alone;
  const std::vector<std::vector<double>> again = served_again(alternations, rate, slots);
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

Experiment read_experiment(const std::vector<Alternation>& repeats, int slots) {
  Experiment found;
  found.repeats = int(repeats.size());
  for (int r = 0; r < found.repeats; ++r) {
    add_requests(repeats[std::size_t(r)].speculative, r, found.speculative, found);
    add_requests(repeats[std::size_t(r)].baseline, r, found.baseline, found);
  }
  for (const int prompt : found.failed) found.speculative.erase(prompt), found.baseline.erase(prompt);
  if (!found.failed.empty() && found.speculative.empty()) throw Error("every prompt has a request that failed");
  const auto prompts = [](const Prompts& side) {
    std::set<int> all;
    for (const auto& [prompt, served] : side)
      if (std::ranges::all_of(served, [](const Served& s) { return s.rounds > 0; })) all.insert(prompt);
    return all;
  };
  if (found.speculative.empty() || prompts(found.speculative).size() != found.speculative.size() ||
      prompts(found.speculative) != prompts(found.baseline))
    throw Error("speculation and baseline did not serve the same prompts in every repeat");
  if (slots < 2) return found;
  const auto fast = closed_loop_of(repeats, &Alternation::speculative, slots),
             plain = closed_loop_of(repeats, &Alternation::baseline, slots);
  if (fast && plain) found.queues = {*fast, *plain};
  return found;
}

Measurements rates(const Experiment& e, const std::vector<int>& prompts, const Window& w, bool over_baseline) {
  Measurements measured(int(prompts.size()), e.repeats);
  for (int i = 0; i < int(prompts.size()); ++i)
    for (int r = 0; r < e.repeats; ++r) {
      const Served &fast = e.speculative.at(prompts[i])[r], &plain = e.baseline.at(prompts[i])[r];
      measured.at(i, r) = {fast.*w.tokens, fast.*w.seconds, 1, 1};
      if (over_baseline) measured.at(i, r) = {fast.*w.tokens, fast.*w.seconds, plain.*w.tokens, plain.*w.seconds};
    }
  return measured;
}

WholeRates::WholeRates(const Experiment& e, const std::vector<int>& prompts)
    : speedup(rates(e, prompts, kEndToEnd, true)),
      tokens_per_second(rates(e, prompts, kEndToEnd, false)),
      steady_speedup(rates(e, prompts, kSteady, true)) {
  if (!e.queues) return;
  const ServedAgain fast = served_again(e.queues->speculative), plain = served_again(e.queues->baseline);
  tokens_per_second.again = fast.whole;
  for (std::size_t b = 0; b < fast.whole.size(); ++b)
    speedup.again.push_back(fast.whole[b] - plain.whole[b]),
        steady_speedup.again.push_back(fast.steady[b] - plain.steady[b]);
}

}  // namespace foretoken

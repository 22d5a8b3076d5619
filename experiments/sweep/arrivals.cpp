#include "experiments/sweep/arrivals.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "kernels/philox.h"

namespace foretoken {

using nlohmann::json;

std::vector<double> poisson_arrivals(const ArrivalRate& rate, std::size_t count, std::uint64_t seed, int alternation) {
  // Draws of tokens with the same seed have their role in the upper three bits of the last word, and no role is 7.
  constexpr std::uint32_t kArrival = 7u << 29;
  static_assert(std::uint32_t(Role::noise) < kArrival >> 29);
  std::vector<double> times;
  double expected = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Philox drawn = philox4x32_10(std::uint32_t(i), std::uint32_t(alternation), 0, kArrival, std::uint32_t(seed),
                                       std::uint32_t(seed >> 32));
    if (i > 0) expected -= std::log(Draws::uniform_from(drawn.word[0]));
    times.push_back(rate.when(expected));
  }
  return times;
}

Loop loop_of(const json& run, std::size_t requests, int alternation) {
  const int slots = run.at("engine").at("batch");
  const auto rate = arrival_rate_of(run);
  if (!rate) return Loop(slots);
  return Loop(slots, poisson_arrivals(*rate, requests, run.at("sampling").at("seed"), alternation));
}

void sleep_until(Loop::Clock::time_point then, const std::function<void()>& meanwhile) {
  constexpr std::chrono::milliseconds kPart(50);
  for (auto now = Loop::Clock::now(); now < then; now = Loop::Clock::now()) {
    std::this_thread::sleep_until(std::min(then, now + kPart));
    meanwhile();
  }
}

Conversations::Conversations(const std::vector<Job>& jobs) : jobs_(jobs), followers_(jobs.size()), said_(jobs.size()) {
  for (std::size_t i = 0; i < jobs.size(); ++i)
    if (jobs[i].after >= 0)
      followers_[std::size_t(jobs[i].after)].push_back(i);
    else
      ready_.push_back(i);
}

std::size_t Conversations::next() {
  const std::size_t job = ready_.front();
  ready_.pop_front();
  return job;
}

std::vector<Token> Conversations::prompt(std::size_t job) const {
  std::vector<Token> tokens;
  if (const int after = jobs_[job].after; after >= 0) tokens = said_[std::size_t(after)];
  const std::vector<Token>& own = jobs_[job].request.prompt;
  tokens.insert(tokens.end(), own.begin(), own.end());
  return tokens;
}

std::vector<std::size_t> Conversations::from(std::size_t job) const {
  std::vector<std::size_t> all{job};
  for (std::size_t i = 0; i < all.size(); ++i)
    all.insert(all.end(), followers_[all[i]].begin(), followers_[all[i]].end());
  return all;
}

std::vector<std::size_t> Conversations::ended(std::size_t job, const Sequence& sequence) {
  if (sequence.finish == Finish::failed) {
    std::vector<std::size_t> later = from(job);
    later.erase(later.begin());
    return later;
  }
  ready_.insert(ready_.begin(), followers_[job].begin(), followers_[job].end());
  if (!followers_[job].empty())
    said_[job].assign(sequence.tokens.begin(), sequence.tokens.end() - (sequence.finish == Finish::stop_token));
  return {};
}

}  // namespace foretoken

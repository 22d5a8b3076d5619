// Alternations of an open loop like those of a committed result line, whose true figures are known by simulating many:
// its requests arrive at random times and wait for a place, take the rounds that they took, and share steps that last
// as long as the line's did. Speeds vary between alternations as the line's vary (normal, with the covariance of both
// sides), and from step to step.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/summary.h"
#include "tests/experiments/report/committed_results.h"
#include "tests/experiments/report/made_results.h"

namespace foretoken::test {

class FittedQueue {
 public:
  using json = nlohmann::json;

  explicit FittedQueue(const json& line) : places_(line.at("run").at("engine").at("batch")) {
    for (int s = 0; s < 2; ++s)
      for (const json& r : line.at("repeats").at(0).at(kSides[s]).at("requests"))
        requests_[s].push_back({r.at("tokens"), r.at("rounds")});
    fit(line.at("repeats"));
  }

  // The same on a machine whose speed does not vary between alternations.
  FittedQueue steady() const {
    FittedQueue found = *this;
    found.machine_ = {};
    return found;
  }

  FittedQueue with_places(int places) const {
    FittedQueue found = *this;
    found.places_ = places;
    return found;
  }

  int places() const { return places_; }
  std::size_t requests() const { return requests_[0].size(); }

  // Requests per second, so many times as many as plain decoding serves with all places taken.
  double rate(double load) const {
    double rounds = 0;
    for (const Asked& r : requests_[1]) rounds += r.rounds / double(requests());
    return load * places_ / (rounds * step_[1]);
  }

  // A run with this load, whose limits are as long as some of plain decoding's steps.
  json run(double load, double ttft_steps, double tpot_steps) const {
    return {{"engine", {{"batch", places_}}},
            {"workload",
             {{"rate", rate(load)}, {"ttft_limit", ttft_steps * step_[1]}, {"tpot_limit", tpot_steps * step_[1]}}}};
  }

  Alternation alternation(double load, std::mt19937& random) const {
    std::normal_distribution<double> normal(0, 1);
    std::exponential_distribution<double> gap(rate(load));
    std::vector<double> arrivals{0};
    while (arrivals.size() < requests()) arrivals.push_back(arrivals.back() + gap(random));
    const double u = normal(random), v = normal(random);
    const double machine[] = {machine_[0] * u, machine_[1] * u + machine_[2] * v};
    Alternation both;
    for (int s = 0; s < 2; ++s)
      (s == 0 ? both.speculative : both.baseline) =
          served(requests_[s], arrivals, step_[s] * std::exp(machine[s]), random);
    return both;
  }

 private:
  static constexpr const char* kSides[] = {"speculative", "baseline"};
  static constexpr double kFixed = 0.5;       // of a full step's time: what one sequence costs
  static constexpr double kStepNoise = 0.05;  // of the logarithm of a step's time

  struct Asked {
    double tokens, rounds;
  };
  struct Running {
    std::size_t request;
    double rounds = 0;
  };

  // Mean seconds of a step, and how they vary from one alternation to the next.
  void fit(const json& repeats) {
    std::vector<std::array<double, 2>> logs;
    std::array<double, 2> mean{};
    const double n = double(repeats.size());
    for (const json& repeat : repeats) {
      logs.emplace_back();
      for (int s = 0; s < 2; ++s) {
        const json& measure = repeat.at(kSides[s]);
        logs.back()[std::size_t(s)] = std::log(measure.at("seconds").get<double>() / measure.at("steps").get<double>());
        mean[std::size_t(s)] += logs.back()[std::size_t(s)] / n;
      }
    }
    double fast = 0, both = 0, plain = 0;
    for (const auto& l : logs) {
      const double a = l[0] - mean[0], b = l[1] - mean[1];
      fast += a * a / (n - 1), both += a * b / (n - 1), plain += b * b / (n - 1);
    }
    machine_ = {std::sqrt(fast), both / std::sqrt(fast), std::sqrt(std::max(0.0, plain - both * both / fast))};
    for (int s = 0; s < 2; ++s) step_[s] = std::exp(mean[std::size_t(s)]);
  }

  SideRecord served(const std::vector<Asked>& asked, const std::vector<double>& arrivals, double step,
                    std::mt19937& random) const {
    std::normal_distribution<double> normal(0, kStepNoise);
    SideRecord found;
    found.requests.resize(asked.size());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      RequestRecord& r = found.requests[i];
      r.prompt = int(i);
      r.arrival = arrivals[i];
      r.tokens = std::lround(asked[i].tokens);
      r.first_tokens = std::lround(asked[i].tokens / asked[i].rounds);
      r.finish = "length";
      r.steady_tokens = 0;
      r.steady_seconds = 0;
    }
    std::vector<double> first(asked.size());
    std::vector<Running> running;
    double now = 0, idle = 0;
    for (std::size_t next = 0; next < asked.size() || !running.empty();) {
      if (running.empty() && arrivals[next] > now) idle += arrivals[next] - now, now = arrivals[next];
      for (; next < asked.size() && arrivals[next] <= now && running.size() < std::size_t(places_); ++next) {
        running.push_back({next});
        found.requests[next].queued = now - arrivals[next];
      }
      now += step * (kFixed + (1 - kFixed) * double(running.size()) / places_) * std::exp(normal(random));
      for (Running& r : running)
        if (++r.rounds == 1) first[r.request] = now;
      std::erase_if(running, [&](const Running& r) {
        if (r.rounds < asked[r.request].rounds) return false;
        RequestRecord& done = found.requests[r.request];
        done.ttft = first[r.request] - arrivals[r.request];
        done.seconds = now - arrivals[r.request];
        done.decode_seconds = now - first[r.request];
        return true;
      });
    }
    found.seconds = now;
    found.idle_seconds = idle;
    return found;
  }

  int places_;
  std::vector<Asked> requests_[2];  // of each side
  double step_[2] = {};
  std::array<double, 3> machine_{};  // the Cholesky factor of the covariance of both sides
};

// Every ninth committed line, of one and of four places, of 24 and of 60 requests, and four lines of a machine whose
// speed varied much more.
inline std::vector<FittedQueue> fitted_queues() {
  std::vector<FittedQueue> found;
  int line = 0;
  for (const char* name : {"cpu/lengths", "cpu/quickstart"})
    for (const nlohmann::json& l : committed_results(name))
      if (l.contains("repeats") && line++ % 9 == 0) found.emplace_back(l);
  std::ifstream noisy(std::string(FORETOKEN_SOURCE_DIR) + "/tests/data/noisy_quickstart.jsonl");
  for (std::string l; std::getline(noisy, l);) found.emplace_back(nlohmann::json::parse(l));
  return found;
}

}  // namespace foretoken::test

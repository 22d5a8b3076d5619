// Alternations of a closed loop like those of a committed result line of a GPU, whose true figures are known by
// simulating many: prompts are drawn from those that the line served, share the steps of a batch, and steps last as
// long as the line's steps of as many rows did.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/experiment.h"
#include "tests/experiments/report/committed_results.h"
#include "tests/experiments/report/made_results.h"

namespace foretoken::test {

class FittedLoop {
 public:
  using json = nlohmann::json;

  // Prompts of one line, and steps of another, of the batch that is simulated.
  FittedLoop(const json& prompts, const json& steps) : places_(steps.at("run").at("engine").at("batch")) {
    for (int s = 0; s < 2; ++s) {
      for (const json& r : prompts.at("repeats").at(0).at(kSides[s]).at("requests"))
        asked_[s].push_back({r.at("tokens"), r.at("rounds"), r.at("drafted"), r.at("prompt_tokens")});
      fit(s, steps.at("repeats"));
    }
  }

  int places() const { return places_; }
  std::vector<int> draw(int count, std::mt19937& random) const {
    std::uniform_int_distribution<int> any(0, int(asked_[0].size()) - 1);
    std::vector<int> found;
    for (int i = 0; i < count; ++i) found.push_back(any(random));
    return found;
  }

  // The alternations of a run of these prompts.
  std::vector<Alternation> measure(const std::vector<int>& drawn, int repeats, std::mt19937& random) const {
    std::normal_distribution<double> normal(0, 1);
    std::vector<Alternation> found(std::size_t(repeats), Alternation{});
    for (Alternation& both : found)
      for (int s = 0; s < 2; ++s) {
        std::vector<Got> got;
        const Totals totals = serve(s, drawn, std::exp(machine_[s] * normal(random)), random, &got);
        (s == 0 ? both.speculative : both.baseline) = record(s, drawn, got, totals);
      }
    return found;
  }

  // Of so many experiments of so many prompts each, the ratios of totals.
  struct Truth {
    double speedup, tokens_per_second, steady_speedup;
  };
  Truth truth(int prompts, int experiments, std::mt19937& random) const {
    Totals all[2];
    for (int e = 0; e < experiments; ++e) {
      const std::vector<int> drawn = draw(prompts, random);
      for (int s = 0; s < 2; ++s) all[s] += serve(s, drawn, 1, random, nullptr);
    }
    const auto rate = [&](int s) { return all[s].tokens / all[s].seconds; };
    const auto steady = [&](int s) { return all[s].steady_tokens / all[s].steady_seconds; };
    return {rate(0) / rate(1), rate(0), steady(0) / steady(1)};
  }

 private:
  static constexpr const char* kSides[] = {"speculative", "baseline"};
  static constexpr double kStepNoise = 0.02;  // of the logarithm of a step's time

  struct Asked {
    double tokens, rounds, drafted, prompt_tokens;
  };
  struct Got {
    double start = 0, first = 0, end = 0, share = 0, steady = 0, steady_rounds = 0;
  };
  struct Totals {
    double tokens = 0, seconds = 0, steady_tokens = 0, steady_seconds = 0, steps = 0;
    Totals& operator+=(const Totals& o) {
      tokens += o.tokens, seconds += o.seconds, steps += o.steps;
      steady_tokens += o.steady_tokens, steady_seconds += o.steady_seconds;
      return *this;
    }
  };
  struct Running {
    std::size_t request;
    double rounds = 0;
  };

  // Means over steps of about as many rows, of prompt tokens what is left of the time, and how alternations vary.
  void fit(int s, const json& repeats) {
    std::map<int, std::array<double, 3>> octaves;  // steps, their rows and seconds
    double left = 0, tokens = 0, steps = 0, timed = 0, mean = 0, squares = 0;
    const double n = double(repeats.size());
    for (const json& repeat : repeats) {
      const json& measure = repeat.at(kSides[s]);
      for (const json& of_rows : measure.at("steps_of_rows")) {
        const double count = of_rows.at("steps"), rows = of_rows.at("rows"), seconds = of_rows.at("seconds");
        auto& sum = octaves[int(std::floor(2 * std::log2(rows)))];
        sum[0] += count, sum[1] += count * rows, sum[2] += seconds, timed += count, left -= seconds;
      }
      left += measure.at("seconds").get<double>(), steps += measure.at("steps").get<double>();
      tokens += measure.at("prompt_tokens").get<double>();
      mean += std::log(measure.at("seconds").get<double>()) / n;
    }
    double untimed = 0;
    for (const auto& [octave, sum] : octaves) {
      times_[s].push_back({sum[1] / sum[0], sum[2] / sum[0]});
      untimed += sum[2] / timed * (steps - timed);
    }
    prompt_token_[s] = std::max(0.0, left - untimed) / tokens;
    for (const json& repeat : repeats)
      squares += std::pow(std::log(repeat.at(kSides[s]).at("seconds").get<double>()) - mean, 2);
    machine_[s] = std::sqrt(squares / (n - 1));
  }

  double step_seconds(int s, double rows) const {
    const auto& times = times_[s];
    const auto above = std::ranges::find_if(times, [&](const auto& t) { return t[0] >= rows; });
    if (above == times.begin()) return times.front()[1];
    if (above == times.end()) return times.back()[1];
    const auto& [r0, t0] = *(above - 1);
    const auto& [r1, t1] = *above;
    return t0 + (rows - r0) / (r1 - r0) * (t1 - t0);
  }

  Totals serve(int s, const std::vector<int>& drawn, double machine, std::mt19937& random,
               std::vector<Got>* got) const {
    std::normal_distribution<double> normal(0, kStepNoise);
    std::vector<Got> requests(drawn.size());
    std::vector<Running> running;
    Totals totals;
    for (std::size_t next = 0; next < drawn.size() || !running.empty(); ++totals.steps) {
      double prompt_tokens = 0, rows = 0;
      for (; next < drawn.size() && running.size() < std::size_t(places_); ++next) {
        running.push_back({next});
        requests[next].start = totals.seconds, prompt_tokens += asked(s, drawn, next).prompt_tokens;
      }
      for (const Running& r : running)
        rows += 1 + asked(s, drawn, r.request).drafted / asked(s, drawn, r.request).rounds;
      const double wall =
          machine * std::exp(normal(random)) * (step_seconds(s, rows) + prompt_token_[s] * prompt_tokens);
      const bool steady = totals.steps > 0 && running.size() == std::size_t(places_);
      totals.seconds += wall, totals.steady_seconds += steady ? wall : 0;
      for (Running& r : running) {
        Got& g = requests[r.request];
        g.share += wall / double(running.size());
        if (steady) g.steady += wall / double(running.size()), ++g.steady_rounds;
        if (++r.rounds == 1) g.first = totals.seconds;
        g.end = totals.seconds;
      }
      std::erase_if(running, [&](const Running& r) { return r.rounds >= asked(s, drawn, r.request).rounds; });
    }
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const Asked& a = asked(s, drawn, i);
      totals.tokens += a.tokens, totals.steady_tokens += a.tokens / a.rounds * requests[i].steady_rounds;
    }
    if (got) *got = std::move(requests);
    return totals;
  }

  SideRecord record(int s, const std::vector<int>& drawn, const std::vector<Got>& got, const Totals& totals) const {
    SideRecord found;
    found.seconds = totals.seconds;
    found.steps = std::lround(totals.steps);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const Asked& a = asked(s, drawn, i);
      const Got& g = got[i];
      RequestRecord& r = found.requests.emplace_back();
      r.prompt = int(i);
      r.prompt_tokens = std::lround(a.prompt_tokens);
      r.tokens = std::lround(a.tokens);
      r.first_tokens = 1;
      r.rounds = std::lround(a.rounds);
      r.drafted = r.tested = std::lround(a.drafted);
      r.accepted = r.tokens - r.rounds;
      r.seconds = g.end - g.start;
      r.decode_seconds = g.end - g.first;
      r.share_seconds = g.share;
      r.steady_seconds = g.steady;
      r.steady_tokens = std::lround(a.tokens / a.rounds * g.steady_rounds);
    }
    return found;
  }

  const Asked& asked(int s, const std::vector<int>& drawn, std::size_t i) const {
    return asked_[s][std::size_t(drawn[i])];
  }

  int places_;
  std::vector<Asked> asked_[2];                  // of each side
  std::vector<std::array<double, 2>> times_[2];  // rows and seconds of a step, by rows
  double prompt_token_[2] = {}, machine_[2] = {};
};

// The coverage of what is printed as 95 %, and the mean width, over that of intervals that resample shares of the time.
struct LoopCoverage {
  int all = 0, held = 0, of_shares = 0;
  double width = 0, width_of_shares = 0;

  void add(Measurements measured, double truth) {
    const Interval found = paired_interval(measured);
    measured.again.clear();
    add(found, paired_interval(measured), truth);
  }
  void add(const Interval& found, const Interval& old, double truth) {
    ++all, held += found.contains(truth), of_shares += old.contains(truth);
    width += found.width(), width_of_shares += old.width();
  }
  double share() const { return double(held) / all; }
  double share_of_shares() const { return double(of_shares) / all; }
};

struct LoopCoverages {
  LoopCoverage speedup, tokens_per_second, steady_speedup, compared;

  // An experiment of three alternations.
  static WholeRates rates_of(const FittedLoop& loop, const std::vector<int>& drawn, std::mt19937& random) {
    const Experiment e = read_experiment(loop.measure(drawn, 3, random), loop.places());
    std::vector<int> all;
    for (const auto& [prompt, served] : e.speculative) all.push_back(prompt);
    return WholeRates(e, all);
  }

  void add(const FittedLoop& loop, int prompts, int experiments, int simulated, std::mt19937& random) {
    const FittedLoop::Truth truth = loop.truth(prompts, simulated, random);
    for (int k = 0; k < experiments; ++k) {
      const WholeRates rates = rates_of(loop, loop.draw(prompts, random), random);
      speedup.add(rates.speedup, truth.speedup);
      tokens_per_second.add(rates.tokens_per_second, truth.tokens_per_second);
      steady_speedup.add(rates.steady_speedup, truth.steady_speedup);
    }
  }

  // The ratio of the speedups of two lines that serve the same prompts.
  void add_compared(const FittedLoop& a, const FittedLoop& b, int prompts, int experiments, int simulated,
                    std::mt19937& random) {
    const double truth = b.truth(prompts, simulated, random).speedup / a.truth(prompts, simulated, random).speedup;
    for (int k = 0; k < experiments; ++k) {
      const std::vector<int> drawn = a.draw(prompts, random);
      Measurements below = rates_of(a, drawn, random).speedup, above = rates_of(b, drawn, random).speedup;
      const Interval found = interval_of(resampled_ratio(below, above));
      below.again.clear(), above.again.clear();
      compared.add(found, interval_of(resampled_ratio(below, above)), truth);
    }
  }
};

// Of every combination of draft length and temperature that the committed file measured with so many places.
inline std::vector<FittedLoop> fitted_loops(int places) {
  std::map<std::string, nlohmann::json> prompts, steps;
  for (const nlohmann::json& line : committed_results("h100/inflated")) {
    const int batch = line.at("run").at("engine").at("batch");
    nlohmann::json axes = line.at("axes");
    axes.erase("/engine/batch");
    if (batch == 64) prompts[axes.dump()] = line;  // it has the most
    if (batch == places) steps[axes.dump()] = line;
  }
  std::vector<FittedLoop> found;
  for (const auto& [axes, line] : steps) found.emplace_back(prompts.at(axes), line);
  return found;
}

}  // namespace foretoken::test

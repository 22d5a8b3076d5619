// Measurements like those of a committed result line, of which the truth is known: prompts are drawn from its prompts,
// alternations vary as its alternations do (normal, with the covariance of both sides), and each measurement has the
// noise that is left in one of its own.
#pragma once
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/experiment.h"
#include "experiments/report/statistics.h"
#include "tests/experiments/report/made_results.h"

namespace foretoken::test {

class FittedNoise {
 public:
  using Sides = std::array<double, 2>;  // of speculation, of the baseline

  explicit FittedNoise(const nlohmann::json& line) {
    const Experiment e = read_experiment(line.at("repeats"));
    repeats_ = e.repeats;
    for (const auto& [prompt, fast] : e.speculative) {
      prompts_.push_back({fast, e.baseline.at(prompt)});
      logs_.emplace_back();
      for (int r = 0; r < repeats_; ++r) {
        const Served &s = fast[std::size_t(r)], &b = e.baseline.at(prompt)[std::size_t(r)];
        logs_.back().push_back({std::log(s.seconds / s.tokens), std::log(b.seconds / b.tokens)});
      }
    }
    fit();
  }

  int prompts() const { return int(prompts_.size()); }

  // The terms of one prompt without noise, over the baseline if that is requested.
  Term expected(int prompt, bool speedup) const {
    const auto total = [&](const std::vector<Served>& all, double Served::* what) {
      double sum = 0;
      for (const Served& s : all) sum += s.*what;
      return sum / double(all.size());
    };
    const auto& [fast, plain] = prompts_[std::size_t(prompt)];
    Term term{total(fast, &Served::tokens), total(fast, &Served::seconds), 1, 1};
    if (speedup) term.base_top = total(plain, &Served::tokens), term.base_bottom = total(plain, &Served::seconds);
    return term;
  }
  double truth(bool speedup) const {
    std::vector<Term> all;
    for (int p = 0; p < prompts(); ++p) all.push_back(expected(p, speedup));
    return ratio_of_totals(all);
  }
  // What acceptance is made of, which is the same in all alternations.
  Term counts(int prompt, double Served::* top, double Served::* bottom) const {
    const Served& s = prompts_[std::size_t(prompt)].first.front();
    return {s.*top, s.*bottom, 1, 1};
  }

  // A measurement of these prompts in so many alternations.
  Measurements measure(const std::vector<int>& drawn, int repeats, bool speedup, std::mt19937& random) const {
    std::normal_distribution<double> normal(0, 1);
    std::uniform_int_distribution<std::size_t> any(0, noise_.size() - 1);
    Measurements measured(int(drawn.size()), repeats);
    for (int r = 0; r < repeats; ++r) {
      const double u = normal(random), v = normal(random);
      const Sides machine{machine_[0] * u, machine_[1] * u + machine_[2] * v};
      for (int p = 0; p < int(drawn.size()); ++p) {
        const Sides& noise = noise_[any(random)];
        Term& term = measured.at(p, r) = expected(drawn[std::size_t(p)], speedup);
        term.bottom *= std::exp(machine[0] + noise[0]);
        if (speedup) term.base_bottom *= std::exp(machine[1] + noise[1]);
      }
    }
    return measured;
  }

 private:
  // Means over prompts and alternations, and what is left; each as wide as that of independent draws.
  void fit() {
    const double n = prompts(), r = repeats_;
    std::vector<Sides> of_prompt(prompts_.size(), Sides{}), of_repeat(std::size_t(repeats_), Sides{});
    Sides mean{};
    for (std::size_t p = 0; p < logs_.size(); ++p)
      for (std::size_t k = 0; k < logs_[p].size(); ++k)
        for (int s = 0; s < 2; ++s)
          of_prompt[p][s] += logs_[p][k][s] / r, of_repeat[k][s] += logs_[p][k][s] / n,
              mean[s] += logs_[p][k][s] / n / r;
    double fast = 0, both = 0, plain = 0;
    for (const Sides& k : of_repeat) {
      const double a = k[0] - mean[0], b = k[1] - mean[1];
      fast += a * a / (r - 1), both += a * b / (r - 1), plain += b * b / (r - 1);
    }
    machine_ = {std::sqrt(fast), both / std::sqrt(fast), std::sqrt(std::max(0.0, plain - both * both / fast))};
    const double wider = std::sqrt(n * r / ((n - 1) * (r - 1)));
    Sides factor{};
    for (std::size_t p = 0; p < logs_.size(); ++p)
      for (std::size_t k = 0; k < logs_[p].size(); ++k) {
        Sides& left = noise_.emplace_back();
        for (int s = 0; s < 2; ++s) {
          left[s] = wider * (logs_[p][k][s] - of_prompt[p][s] - of_repeat[k][s] + mean[s]);
          factor[s] += std::exp(left[s]) / n / r;
        }
      }
    for (Sides& left : noise_)
      for (int s = 0; s < 2; ++s) left[s] -= std::log(factor[s]);  // it changes no expected time
  }

  int repeats_ = 0;
  std::vector<std::pair<std::vector<Served>, std::vector<Served>>> prompts_;
  std::vector<std::vector<Sides>> logs_;  // [prompt][alternation], of seconds per token
  std::array<double, 3> machine_{};       // the Cholesky factor of the covariance of both sides
  std::vector<Sides> noise_;
};

}  // namespace foretoken::test

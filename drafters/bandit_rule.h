// The choice among arms by the tokens per second that each was measured to give: UCB1 (Auer et al. 2002) or Thompson
// sampling (Thompson 1933). An arm is kept for a trial of several steps; the first step after a change is not measured,
// since a model then reads what it missed. An arm's rate is a ratio of totals: its tokens over its seconds. Arms that
// were not measured `explore` times come first, in their order; among equals the first one wins. It draws by a
// counter-based generator of its own, named by its seed, its number, the step and the arm. This module must not know
// what the arms are.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/components/registry.h"
#include "framework/components/step_report.h"

namespace foretoken {

struct BanditOptions {
  bool thompson = true;
  double exploration = 0.3;  // of UCB1: the bonus of an arm over the best rate, in units of sqrt(2 ln n / n_arm)
  int explore = 16, trial = 4;
  std::uint32_t seed = 1;
};

// The options that choose a rule, and what they say. `who` ("the drafter 'bandit'") is for the Error of an unknown
// rule.
std::vector<Option> bandit_options();
BanditOptions read_bandit(const nlohmann::json& options, const std::string& who);

// The tokens that a step emitted, and its seconds: 0 where they tell nothing of what drafted, since the device recorded
// the step, or it took memory back.
struct StepYield {
  double tokens = 0, seconds = 0;
  bool prompts = false;  // it read prompts, too
};
StepYield yield_of(const StepReport& report);

// What is known of one arm: sums over its measured steps.
struct ArmSums {
  double steps = 0, tokens = 0, seconds = 0, tokens_tokens = 0, tokens_seconds = 0, seconds_seconds = 0;

  void add(double t, double s) {
    steps += 1, tokens += t, seconds += s;
    tokens_tokens += t * t, tokens_seconds += t * s, seconds_seconds += s * s;
  }
  double rate() const { return tokens / seconds; }
  // The standard error of the rate, of a ratio of totals. One step more is added that is wrong by all that a step is
  // expected to give: few steps that are alike by chance do not make an arm certain.
  double error() const;
};

// One bandit. `number` tells those of one component apart.
class BanditState {
 public:
  BanditState(int arms, std::uint32_t number) : arms_(std::size_t(arms)), number_(number) {}
  int arm() const { return arm_; }
  double measured() const;
  // After steps enough to have tried every arm twice, it has not tried all of them once.
  bool blind(const BanditOptions& options) const;
  // Then, for a notice: "could measure 3 of 40 steps, since ..., and has not compared all", of the arms.
  std::string unmeasured() const;

  // A step in which the arm drafted.
  void add(const StepYield& yield, const BanditOptions& options);

 private:
  int choose(const BanditOptions& options) const;

  std::vector<ArmSums> arms_;
  std::uint32_t number_;  // names its draws
  std::uint64_t all_ = 0;
  int arm_ = 0, steps_ = 0;  // the arm, and how many steps its trial has had
  bool changed_ = true;      // it was another arm before
};

}  // namespace foretoken

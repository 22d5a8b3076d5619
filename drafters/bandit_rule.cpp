#include "drafters/bandit_rule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/error.h"
#include "kernels/philox.h"

namespace foretoken {
namespace {

// A standard normal number. The last word is none that a draw of a request has (Role), so they share nothing.
double normal(std::uint32_t seed, std::uint64_t step, std::uint32_t arm, std::uint32_t state) {
  const Philox p = philox4x32_10(std::uint32_t(step), std::uint32_t(step >> 32), arm, 7u << 29 | state, seed, 0);
  return std::sqrt(-2 * std::log(Draws::uniform_from(p.word[0]))) *
         std::cos(2 * std::numbers::pi * Draws::uniform_from(p.word[1]));
}

}  // namespace

std::vector<Option> bandit_options() {
  return {{"rule", "string", "thompson", "how the next arm is chosen: thompson or ucb (UCB1)"},
          {"exploration", "number", 0.3,
           "of ucb: an arm's bonus over the best rate, in units of sqrt(2 ln steps / steps of the arm)", false, 0, 10},
          {"explore", "integer", 16, "measured steps that each arm gets first", false, 1, 10000},
          {"trial", "integer", 4, "steps for which a chosen arm is kept", false, 1, 10000},
          {"seed", "integer", 1, "of thompson's draws", false, 0, 4294967295.0}};
}

BanditOptions read_bandit(const nlohmann::json& options, const std::string& who) {
  const std::string rule = options.at("rule");
  if (rule != "ucb" && rule != "thompson") throw Error(who + " has no rule '" + rule + "'; known: ucb, thompson");
  return {.thompson = rule == "thompson",
          .exploration = options.at("exploration").get<double>(),
          .explore = options.at("explore").get<int>(),
          .trial = options.at("trial").get<int>(),
          .seed = options.at("seed").get<std::uint32_t>()};
}

StepYield yield_of(const StepReport& report) {
  StepYield yield;
  const bool fair = report.recorded == 0 && report.preempted == 0;
  for (const SequenceReport& s : report.sequences) {
    yield.tokens += double(s.emitted.size());
    yield.prompts |= s.prompt_rows > 0;
  }
  if (fair && std::isfinite(report.phases.total)) yield.seconds = report.phases.total;
  return yield;
}

double ArmSums::error() const {
  const double r = rate(), residual = tokens_tokens - 2 * r * tokens_seconds + r * r * seconds_seconds;
  return std::sqrt(std::max(0.0, residual) + std::pow(tokens / steps, 2)) / seconds;
}

double BanditState::measured() const {
  double all = 0;
  for (const ArmSums& a : arms_) all += a.steps;
  return all;
}

bool BanditState::blind(const BanditOptions& options) const {
  return double(all_) >= 2.0 * double(arms_.size()) * options.explore &&
         std::ranges::any_of(arms_, [&](const ArmSums& a) { return a.steps < options.explore; });
}

std::string BanditState::unmeasured() const {
  return "could measure " + std::to_string(int(measured())) + " of " + std::to_string(all_) +
         " steps, since the others read prompts, were recorded or came after a change, and has not compared all";
}

void BanditState::add(const StepYield& yield, const BanditOptions& options) {
  const bool first = changed_ && steps_ == 0;
  if (!first && yield.seconds > 0) arms_[std::size_t(arm_)].add(yield.tokens, yield.seconds);
  ++all_;
  if (++steps_ < options.trial + int(changed_)) return;
  const int next = choose(options);
  changed_ = next != arm_;
  steps_ = 0;
  arm_ = next;
}

int BanditState::choose(const BanditOptions& options) const {
  double measured = 0, best = 0;
  for (std::size_t k = 0; k < arms_.size(); ++k) {
    if (arms_[k].steps < options.explore) return int(k);
    measured += arms_[k].steps, best = std::max(best, arms_[k].rate());
  }
  std::vector<double> index;
  for (std::size_t k = 0; k < arms_.size(); ++k)
    index.push_back(arms_[k].rate() +
                    (options.thompson
                         ? arms_[k].error() * normal(options.seed, all_, std::uint32_t(k), number_)
                         : options.exploration * best * std::sqrt(2 * std::log(measured) / arms_[k].steps)));
  return int(std::ranges::max_element(index) - index.begin());
}

}  // namespace foretoken

// Chooses among drafters, the arms, by the tokens per second that each was measured to give: UCB1 (Auer et al. 2002) or
// Thompson sampling (Thompson 1933) by option, for speculative decoding as BanditSpec (Hou et al. 2025, arXiv
// 2505.15141) has it. All sequences of a step draft by one arm, since a step has one time. An arm is kept for a trial
// of several steps; the first step after a change is not measured, since a model then reads what it missed, and neither
// is one that reads prompts or that a device records. An arm's rate is a ratio of totals: its tokens over its seconds.
// Arms that were not measured `explore` times come first, in the order of the list; among equals the first one wins.
// It draws by a counter-based generator of its own, named by its seed, the step and the arm.
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include "drafters/drafters.h"
#include "drafters/parts.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace foretoken {
namespace {

struct BanditOptions {
  bool thompson;
  double exploration;  // of UCB1: the bonus of an arm over the best rate, in units of sqrt(2 ln n / n_arm)
  int explore, trial;
  bool categories;
  std::uint32_t seed;
};

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
  double error() const {
    const double r = rate(), residual = tokens_tokens - 2 * r * tokens_seconds + r * r * seconds_seconds;
    return std::sqrt(std::max(0.0, residual) + std::pow(tokens / steps, 2)) / seconds;
  }
};

// A standard normal number. The last word is none that a draw of a request has (Role), so they share nothing.
double normal(std::uint32_t seed, std::uint64_t step, std::uint32_t arm, std::uint32_t state) {
  const Philox p = philox4x32_10(std::uint32_t(step), std::uint32_t(step >> 32), arm, 7u << 29 | state, seed, 0);
  return std::sqrt(-2 * std::log(Draws::uniform_from(p.word[0]))) *
         std::cos(2 * std::numbers::pi * Draws::uniform_from(p.word[1]));
}

// One bandit: over all sequences, or over steps of one category.
class BanditState {
 public:
  BanditState(int arms, std::uint32_t number) : arms_(std::size_t(arms)), number_(number) {}
  int arm() const { return arm_; }
  double measured() const {
    double all = 0;
    for (const ArmSums& a : arms_) all += a.steps;
    return all;
  }
  // After steps enough to have tried every arm twice, it has not tried all of them once.
  bool blind(const BanditOptions& options) const {
    return double(all_) >= 2.0 * double(arms_.size()) * options.explore &&
           std::ranges::any_of(arms_, [&](const ArmSums& a) { return a.steps < options.explore; });
  }
  std::uint64_t steps() const { return all_; }

  // A step in which the arm drafted: its tokens and seconds, 0 s where they tell nothing of it.
  void add(double tokens, double seconds, const BanditOptions& options) {
    const bool first = changed_ && steps_ == 0;
    if (!first && seconds > 0) arms_[std::size_t(arm_)].add(tokens, seconds);
    ++all_;
    if (++steps_ < options.trial + int(changed_)) return;
    const int next = choose(options);
    changed_ = next != arm_;
    steps_ = 0;
    arm_ = next;
  }

 private:
  int choose(const BanditOptions& options) const {
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

  std::vector<ArmSums> arms_;
  std::uint32_t number_;  // names its draws
  std::uint64_t all_ = 0;
  int arm_ = 0, steps_ = 0;  // the arm, and how many steps its trial has had
  bool changed_ = true;      // it was another arm before
};

class Bandit : public Combination {
 public:
  Bandit(Host& host, const nlohmann::json& drafters, const BanditOptions& options)
      : Combination(host, drafters), options_(options) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees(requests.size());
    const auto [drafting, reading] = apart(requests);
    if (!drafting.empty()) {
      category_ = category_of(requests, drafting);
      drafted_ = true;
    }
    const int arm = state().arm();
    for (int k = 0; k < parts_.count(); ++k) {
      std::vector<int> asked = reading;  // all models read what their caches lack
      if (k == arm) asked.insert(asked.end(), drafting.begin(), drafting.end());
      parts_.draft(k, requests, asked, trees);
      for (const int i : asked) parts_.returns(requests[std::size_t(i)], k, trees[std::size_t(i)]);
    }
    parts_.bare_where_pages_lacked(requests, trees);
    return trees;
  }
  void observe_step(const StepReport& report) override {
    Combination::observe_step(report);
    if (!std::exchange(drafted_, false)) return;
    double tokens = 0;
    bool fair = report.recorded == 0 && report.preempted == 0;
    for (const SequenceReport& s : report.sequences) {
      tokens += double(s.emitted.size());
      fair &= s.prompt_rows == 0;
    }
    const double seconds = report.phases.total;
    state().add(tokens, fair && std::isfinite(seconds) ? seconds : 0, options_);
  }
  std::string notice() const override {
    std::string all = Combination::notice();
    for (const auto& [category, state] : states_)
      if (state.blind(options_))
        return all + (all.empty() ? "" : "; ") + "the drafter 'bandit' could measure " +
               std::to_string(int(state.measured())) + " of " + std::to_string(state.steps()) +
               " steps, since the others read prompts, were recorded or came after a change, and has not compared all "
               "of its drafters";
    return all;
  }

 private:
  static constexpr std::size_t kMostCategories = 256;

  // That of all these requests; "" where they differ, or where all categories are one.
  std::string category_of(std::span<const DraftRequest> requests, std::span<const int> drafting) const {
    if (!options_.categories) return "";
    const auto of = [&](int i) -> const std::string& { return requests[std::size_t(i)].sequence->category; };
    const std::string& first = of(drafting.front());
    const bool one = std::ranges::all_of(drafting, [&](int i) { return of(i) == first; });
    return one && (states_.contains(first) || states_.size() < kMostCategories) ? first : "";
  }
  BanditState& state() {
    return states_.try_emplace(category_, parts_.count(), std::uint32_t(states_.size())).first->second;
  }

  BanditOptions options_;
  std::map<std::string, BanditState> states_;
  std::string category_;  // of the last step that drafted
  bool drafted_ = false;
};

BanditOptions bandit_options(const nlohmann::json& o) {
  const std::string rule = o.at("rule");
  if (rule != "ucb" && rule != "thompson")
    throw Error("the drafter 'bandit' has no rule '" + rule + "'; known: ucb, thompson");
  return {rule == "thompson",       o.at("exploration").get<double>(), o.at("explore").get<int>(),
          o.at("trial").get<int>(), o.at("categories").get<bool>(),    o.at("seed").get<std::uint32_t>()};
}

}  // namespace

Entry<Drafter> bandit() {
  const nlohmann::json lookup{{"name", "ngram"}, {"longest", 2}, {"shortest", 1}}, model{{"name", "draft_model"}},
      tree{{"name", "draft_tree"}, {"shape", {2, 1}}};
  return {.summary = "the drafter of several that gives the most tokens per second, as measured",
          .source = "arXiv 2505.15141",
          .options = {drafters_option("one of them drafts in each step"),
                      {"rule", "string", "thompson", "how the next arm is chosen: thompson or ucb (UCB1)"},
                      {"exploration", "number", 0.3,
                       "of ucb: an arm's bonus over the best rate, in units of sqrt(2 ln steps / steps of the arm)",
                       false, 0, 10},
                      {"explore", "integer", 16, "measured steps that each arm gets first", false, 1, 10000},
                      {"trial", "integer", 4, "steps for which a chosen arm is kept", false, 1, 10000},
                      {"categories", "boolean", false,
                       "whether steps whose sequences are all of one category have a bandit of their own"},
                      {"seed", "integer", 1, "of thompson's draws", false, 0, 4294967295.0}},
          .make = [](const nlohmann::json& o,
                     Host& host) { return std::make_unique<Bandit>(host, o.at("drafters"), bandit_options(o)); },
          .traits =
              [](const nlohmann::json& o, const ModelInfo&) {
                expect_parts(o);
                (void)bandit_options(o);
                return Needs{.learns = true};
              },
          .examples = {{{"drafters", {lookup, model}}, {"trial", 2}, {"explore", 1}},
                       {{"drafters", {model, tree, lookup}},
                        {"rule", "ucb"},
                        {"exploration", 1},
                        {"categories", true},
                        {"trial", 1},
                        {"seed", 7}}},
          .unite = unite_parts};
}

}  // namespace foretoken

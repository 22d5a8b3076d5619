// The depths that promise the most tokens per second for a whole step (TurboSpec, Liu et al. 2024, arXiv 2406.14066):
// the expected tokens of each sequence, from past rounds, over the step's expected seconds, from past steps. Depths are
// chosen for all sequences together, since they share a forward: one more level is given where its chance to be
// accepted is worth what it takes. Where no draft pays, none is made; from time to time one sequence then tries again.
// No choice reads a draft of the round that it is for, so outputs keep their distribution (the non-anticipating rule of
// DSpark, arXiv 2607.05147).
#include <algorithm>
#include <bit>
#include <set>
#include <unordered_map>

#include "drafters/drafters.h"
#include "drafters/policies/cost_model.h"
#include "drafters/policies/step_costs.h"
#include "framework/components/host.h"
#include "framework/text/json_file.h"

namespace foretoken {
namespace {

constexpr double kFadingSteps = 0.995, kFadingAll = 0.99, kFadingOwn = 0.9;  // by steps, and by rounds of one sequence
constexpr double kGain = 1.02;   // over plain decoding, from which on a draft is made: estimates have errors
constexpr double kOwnPrior = 6;  // rounds of a sequence as which those of all count
constexpr int kMeasured = 4;     // steps that each depth of the start is measured
constexpr int kAttempts = 32;    // and taken at most
constexpr int kFirstPause = 16, kLongestPause = 512;  // steps without a draft before one sequence tries again
constexpr int kTrial = 3, kTrialDepth = 2;            // steps that it tries, and their depth
constexpr int kTold = 2;                              // steps as which each depth of a known cost counts at first
constexpr double kRemembered = 4;                     // rounds that are not forgotten while nothing is drafted

// How often at least i levels were accepted in rounds that asked for i, old rounds fading.
class Survival {
 public:
  explicit Survival(int most) : asked_(std::size_t(most)), reached_(std::size_t(most)) {}

  // `known`: of the levels that were asked for, as many as the output's end left to judge.
  void add(int known, int accepted) {
    for (int i = 0; i < known; ++i) {
      asked_[std::size_t(i)] += 1;
      reached_[std::size_t(i)] += i < accepted;
    }
  }
  void fade(double by) {
    for (double& x : asked_) x *= by;
    for (double& x : reached_) x *= by;
  }
  double asked(int i) const { return asked_[std::size_t(i)]; }
  double reached(int i) const { return reached_[std::size_t(i)]; }

 private:
  std::vector<double> asked_, reached_;
};

class Goodput : public LengthPolicy {
 public:
  // `known`: what steps cost before any was taken, so that none is spent on finding out; or null.
  Goodput(int most, int width, int start, std::shared_ptr<const CostModel> known)
      : most_(most),
        width_(width),
        costs_(kFadingSteps),
        all_(most),
        designs_{0, std::min(1, most), start},
        design_(known ? designs_.size() : 0),
        known_(std::move(known)) {}

  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    learn_from_known(past);
    const std::vector<int> depths = depths_of(past);
    std::vector<Budget> budgets;
    for (std::size_t i = 0; i < past.size(); ++i) {
      Own& own = owns_.try_emplace(past[i].id, most_).first->second;
      own.asked = std::min(depths[i], reach_of(past[i]));
      own.length = past[i].length;
      budgets.push_back(level_budget(depths[i], width_));
    }
    return budgets;
  }

  void observe(const StepReport& report) override {
    StepShape step{.batch = int(report.sequences.size()), .rows = double(report.rows)};
    bool judged = false, could = true;
    double drafted = 0;
    if (all_.asked(0) > kRemembered) all_.fade(kFadingAll);
    for (const SequenceReport& s : report.sequences) {
      const auto found = owns_.find(s.id);
      if (found == owns_.end() || !s.judged) continue;
      judged = true;
      Own& own = found->second;
      if (own.asked > 0 && !could_draft(s.no_draft)) {  // says nothing of the drafter
        could = false;
        continue;
      }
      step.depth = std::max(step.depth, own.asked);
      step.levels += own.asked;
      step.context += own.length;
      drafted += s.drafted;
      if (own.asked == 0) continue;
      const int known = s.finish == Finish::running ? own.asked : std::min(own.asked, s.tested());
      own.survival.fade(kFadingOwn);
      own.survival.add(known, s.accepted);
      all_.add(known, s.accepted);
    }
    if (step.levels > 0) {
      rows_ = kFadingAll * rows_ + drafted;
      levels_ = kFadingAll * levels_ + step.levels;
    }
    if (timed_.tells(report, step.depth > 0) && could) costs_.add(step, report.phases);
    if (judged) pass(drafted > 0);
  }

  void forget(const Sequence& sequence) override { owns_.erase(sequence.id); }

 private:
  struct Own {
    explicit Own(int most) : survival(most) {}
    Survival survival;
    int asked = 0, length = 0;  // in the last step
  };

  // Of each size of the batch, by powers of two, when it is first met. Such steps fade as measured ones do.
  void learn_from_known(std::span<const PastOnly> past) {
    if (!known_ || past.empty() || !told_.insert(std::bit_width(past.size())).second) return;
    StepShape step{.batch = int(past.size())};
    for (const PastOnly& p : past) step.context += p.length;
    for (int i = 0; i < kTold * (most_ + 1); ++i) {
      step.depth = i % (most_ + 1);
      step.levels = double(step.batch) * step.depth;
      step.rows = step.batch + step.levels * width_;
      Phases phases;
      phases.draft_forward = known_->draft(step);
      phases.total = known_->seconds(step);
      costs_.add(step, phases);
    }
  }

  // What the next step is for: measuring the depths of the start in turn, then the best known.
  void pass(bool drafted) {
    if (starting()) {
      if (++attempts_ >= kAttempts || costs_.measured(designs_[design_]) >= kMeasured) {
        ++design_;
        attempts_ = 0;
      }
      return;
    }
    if (trial_ > 0) {
      if (drafted && --trial_ == 0) pause_ = std::min(2 * pause_, kLongestPause);
      silent_ = 0;
    } else if (drafted) {
      silent_ = 0;
      pause_ = kFirstPause;
    } else if (++silent_ >= pause_) {
      silent_ = 0;
      trial_ = kTrial;
    }
  }
  bool starting() const { return design_ < designs_.size(); }

  // Of all sequences: the chance that at least i + 1 levels are accepted of as many. Where a level was seldom asked for
  // it follows from the level before, and the rate at which levels below the first were accepted.
  std::vector<double> chances() const {
    double reached = 0, tested = 0;
    for (int i = 1; i < most_; ++i) {
      reached += all_.reached(i);
      tested += all_.asked(i) > 0 ? all_.reached(i - 1) * std::min(1.0, all_.asked(i) / all_.asked(i - 1)) : 0;
    }
    const double rate = (reached + 1.2) / (std::max(tested, reached) + 2);
    std::vector<double> chance;
    double before = 1;
    for (int i = 0; i < most_; ++i) {
      before = std::min(before, (all_.reached(i) + before * rate) / (all_.asked(i) + 1));
      chance.push_back(before);
    }
    return chance;
  }
  std::vector<double> chances_of(const PastOnly& past, const std::vector<double>& all) const {
    const auto found = owns_.find(past.id);
    if (found == owns_.end()) return all;
    std::vector<double> chance;
    double before = 1;
    for (int i = 0; i < most_; ++i) {
      const Survival& own = found->second.survival;
      before = std::min(before, (own.reached(i) + kOwnPrior * all[std::size_t(i)]) / (own.asked(i) + kOwnPrior));
      chance.push_back(before);
    }
    return chance;
  }

  std::vector<int> depths_of(std::span<const PastOnly> past) const {
    std::vector<int> depths(past.size());
    if (starting()) {
      depths.assign(past.size(), designs_[design_]);
      return depths;
    }
    depths = best_depths(past);
    const bool none = std::ranges::all_of(depths, [](int d) { return d == 0; });
    if (trial_ > 0 && none) try_again(past, depths);
    return depths;
  }
  // The last sequence that can draft tries: it stays longest.
  void try_again(std::span<const PastOnly> past, std::vector<int>& depths) const {
    std::size_t last = past.size();
    for (std::size_t i = 0; i < past.size(); ++i)
      if (reach_of(past[i]) > 0 && (last == past.size() || past[i].id > past[last].id)) last = i;
    if (last < past.size()) depths[last] = std::min(kTrialDepth, most_);
  }
  // The levels that rows and pages of the step leave it.
  static int reach_of(const PastOnly& past) { return std::min(past.room.depth, std::max(0, past.room.nodes - 1)); }
  static bool could_draft(NoDraft why) {
    return why != NoDraft::rows && why != NoDraft::pages && why != NoDraft::states;
  }

  std::vector<int> best_depths(std::span<const PastOnly> past) const {
    const double rows_of_level = levels_ > 0 ? rows_ / levels_ : width_;
    StepShape plain{.batch = int(past.size()), .rows = double(past.size())};
    for (const PastOnly& p : past) plain.context += p.length;
    std::vector<int> best(past.size(), 0);
    const double seconds = costs_.seconds(plain);
    if (!(seconds > 0)) {  // nothing could be measured
      std::ranges::fill(best, designs_.back());
      return best;
    }
    std::vector<std::vector<double>> chance;
    const std::vector<double> all = chances();
    for (const PastOnly& p : past) chance.push_back(chances_of(p, all));
    const double plain_rate = double(past.size()) / seconds;
    double rate = plain_rate;
    for (int round = 0; round < 2; ++round) {  // a level's price is in tokens at the rate that is reached: the second
      const double price = rate * costs_.of_a_level(rows_of_level);  // round knows it better
      for (int depth = 1; depth <= most_; ++depth) {
        std::vector<int> depths;
        StepShape step = plain;
        double tokens = double(past.size());
        for (std::size_t s = 0; s < past.size(); ++s) {
          int d = 0;
          while (d < std::min(depth, reach_of(past[s])) && chance[s][std::size_t(d)] > price)
            tokens += chance[s][std::size_t(d++)];
          depths.push_back(d);
          step.levels += d;
          step.depth = std::max(step.depth, d);
        }
        if (step.depth < depth) break;
        step.rows += step.levels * rows_of_level;
        const double promised = tokens / costs_.seconds(step);
        if (promised > rate && promised > kGain * plain_rate) {
          rate = promised;
          best = std::move(depths);
        }
      }
    }
    return best;
  }

  int most_, width_;
  StepCosts costs_;
  Survival all_;
  std::vector<int> designs_;  // depths of the start, in their order
  std::size_t design_;
  int attempts_ = 0;  // steps of this design
  int silent_ = 0, trial_ = 0, pause_ = kFirstPause;
  double rows_ = 0, levels_ = 0;  // drafted nodes, and levels that were asked for; faded
  TimedSteps timed_;
  std::shared_ptr<const CostModel> known_;
  std::set<int> told_;  // bits of the sizes of the batch whose known costs were learned
  std::unordered_map<SequenceId, Own> owns_;
};

Budget largest(const nlohmann::json& o) { return level_budget(o.at("most").get<int>(), o.at("width").get<int>()); }

// Null where there are none.
std::shared_ptr<const CostModel> known_costs(const nlohmann::json& o) {
  const nlohmann::json costs = o.value("costs", nlohmann::json());
  if (costs.is_null()) return nullptr;
  const std::string where = costs.is_string() ? costs.get<std::string>() : "the option 'costs' of the policy 'goodput'";
  auto model = std::make_shared<const CostModel>(CostModel::read(costs.is_string() ? read_json(where) : costs, where));
  if (!model->drafts())
    throw Error(where +
                " has no step with a draft, so the policy 'goodput' would take drafts to cost nothing; "
                "calibrate with the drafter, or leave 'costs' out");
  return model;
}

}  // namespace

Entry<LengthPolicy> goodput() {
  return {
      .summary = "the depths with the most expected tokens per second of the step, or no draft where none pays",
      .source = "arXiv 2406.14066",
      .options = {{"most", "integer", 8, "levels of any draft, 1 to 64", false, 1, kMaxPath},
                  {"width", "integer", 1, "nodes for each level of a draft tree, 1 to 64", false, 1, 64},
                  {"start", "integer", 4, "levels of the first drafts, with which costs are measured, 1 to 64", false,
                   1, kMaxPath},
                  {"costs", "path or object", nullptr,
                   "what foretoken calibrate wrote for this target and drafter, so that no steps are spent on "
                   "measuring costs first; null: they are measured",
                   true}},
      .make =
          [](const nlohmann::json& o, Host&) {
            const int most = o.at("most");
            return std::make_unique<Goodput>(most, o.at("width").get<int>(), std::min(most, o.at("start").get<int>()),
                                             known_costs(o));
          },
      .traits = [](const nlohmann::json& o, const ModelInfo&) { return PolicyTraits(largest(o), /*learning=*/true); },
      .examples = {{{"most", 5}, {"start", 2}},
                   {{"most", 3}, {"width", 2}},
                   {{"most", 2},
                    {"costs",
                     {{"kind", kCostsKind},
                      {"schema", kCostsSchema},
                      {"steps",
                       {{{"batch", 1}, {"rows", 1}, {"seconds", 2e-4}},
                        {{"batch", 1}, {"rows", 3}, {"depth", 2}, {"seconds", 3e-4}, {"draft_seconds", 8e-5}}}}}}}}};
}

}  // namespace foretoken

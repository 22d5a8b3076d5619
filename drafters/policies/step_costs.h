// What a step of the engine takes, fitted while the engine runs from StepReport alone. Two sums of nonnegative terms
// are fitted by least squares in which old steps fade: the drafter's seconds, over whether it drafted, its deepest
// level and the levels of all sequences; and all others, over the target's rows and the positions that attention reads.
// Beside them stands, for each depth and power of two of the batch, how far measured steps were from that fit, since
// the time of a forward is no straight line over its rows. And what else several policies share. This module must not
// know them.
#pragma once
#include <array>
#include <map>
#include <utility>

#include "framework/components/step_report.h"
#include "framework/decode/draft_tree.h"

namespace foretoken {

// Nonnegative c with the least faded sum of (seconds - c . x)^2 over the steps that were added.
class FittedCost {
 public:
  static constexpr int kTerms = 3;
  using Terms = std::array<double, kTerms>;
  explicit FittedCost(double fading) : fading_(fading) {}
  void add(const Terms& x, double seconds);
  double of(const Terms& x) const;
  double per(int term) const { return c_[std::size_t(term)]; }  // seconds of one of a term
  double steps() const { return steps_; }                       // as old ones fade

 private:
  void solve();

  double fading_, steps_ = 0;
  std::array<Terms, kTerms> xx_{};  // sums of x x^T
  Terms xs_{}, c_{};                // of x * seconds; the fit
};

// A step to be taken, or one that was.
struct StepShape {
  int batch = 0;       // sequences
  int depth = 0;       // levels of the deepest draft that is asked for; 0: none drafts
  double levels = 0;   // asked for, over all sequences
  double rows = 0;     // of the target's forward
  double context = 0;  // positions of all sequences
};

class StepCosts {
 public:
  explicit StepCosts(double fading) : draft_(fading), other_(fading), fading_(fading) {}
  void add(const StepShape& step, const Phases& phases);
  double seconds(const StepShape& step) const;  // 0 before anything was added
  // Seconds that one more level of one sequence adds to a step that is as deep already, where it has so many rows.
  double of_a_level(double rows) const { return draft_.per(2) + rows * other_.per(1); }
  int measured(int depth) const;  // steps of a depth, old ones included

 private:
  struct Correction {
    double steps = 0, ratio = 0;  // faded; their sum of measured over fitted seconds
  };
  double fitted(const StepShape& step) const;

  FittedCost draft_, other_;
  double fading_;
  std::map<std::pair<int, int>, Correction> corrections_;  // by depth, and the power of two of the batch
  std::map<int, int> measured_;
};

// Which steps' times tell what their drafts cost: none that a device recorded or that took memory back; none that
// drafts after one that did not, since a model then reads what it missed; and steps that read prompts only where there
// are hardly any others, since what drafters then read is a cost of drafting, too.
class TimedSteps {
 public:
  // Of the step after the last one, which `drafts` or does not. One in which nothing is judged tells nothing.
  bool tells(const StepReport& report, bool drafts);

 private:
  bool drafted_ = false;  // the last step in which something was judged
  int with_prompts_ = 0;  // steps in a row
};

// So many levels of so many nodes each, below a root.
Budget level_budget(int levels, int width);

}  // namespace foretoken

// What a step of the engine takes, known before it is taken: from a table of measured steps, which `foretoken
// calibrate` writes for a machine, and which may be published for another (experiments/costs.md has the form). This
// module must not know who measured the steps, nor what is computed from their times.
#pragma once
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "drafters/policies/step_costs.h"

namespace foretoken {

constexpr int kCostsSchema = 1;
constexpr const char* kCostsKind = "step costs";  // "kind" of a file of costs

// A step that was measured, or the median of several equal ones.
struct CostedStep {
  StepShape shape;
  double seconds = 0, draft_seconds = 0;  // of the whole step; of these, what drafting took
  int steps = 1;                          // that were measured
};

// What a token of a prompt that is read adds to a step, in seconds: the target's, more for each position before it, and
// the drafter's own reading.
struct PromptCosts {
  double seconds = 0, position_seconds = 0, draft_seconds = 0;
};

// |predicted / measured - 1| of whole steps that the fit had not seen, each left out in turn.
struct CostError {
  double median = 0, worst = 0;
};

// A forward's seconds are fitted as a constant and nonnegative multiples of its sequences, of the positions that its
// attention reads, of these times the rows of each sequence, and of the parts of its rows between knots, at powers of
// two or further apart: a line that rises from knot to knot, as steep as it was measured. The target's forward, with
// all that surrounds it, is one such sum, in which a forward with one row a sequence, which other kernels serve, may
// take a constant and a multiple of its sequences more or less than others; drafting is a constant and, for each level,
// another sum, over the nodes of a level. Squares of relative deviations are least.
class CostModel {
 public:
  // An Error, which `where` begins, without steps, and where none is of plain decoding.
  CostModel(std::vector<CostedStep> steps, PromptCosts prompt, const std::string& where = "the costs");
  // Of {"kind": "step costs", "schema": 1, "steps": [{"batch", "rows", "depth", "context", "seconds", "draft_seconds",
  // "steps"}], "prompt_token": {"seconds", "position_seconds", "draft_seconds"}}: context (0) are positions of all
  // sequences; draft_seconds are needed where depth is above 0; steps (1) and prompt_token (0), or members of it, may
  // be left out. Other members are not read. Anything else is an Error, which names its place.
  static CostModel read(const nlohmann::json& document, const std::string& where);
  // The members "kind", "schema", "steps" and "prompt_token" of such a document.
  nlohmann::json document() const;

  double other(const StepShape& step) const;  // seconds of all but drafting
  double draft(const StepShape& step) const;  // 0 where its depth is 0
  double seconds(const StepShape& step) const { return other(step) + draft(step); }
  const PromptCosts& prompt() const { return prompt_; }

  const std::vector<CostedStep>& steps() const { return steps_; }
  // Whether a step with a draft was measured.
  bool drafts() const { return depth_.most > 0; }
  // Whether a step is outside of those that were measured, by more than a tenth.
  bool beyond(const StepShape& step) const { return larger(step) || smaller(step); }
  // In rows, batch, depth, context or nodes of a sequence's level.
  bool larger(const StepShape& step) const;
  // In the same; a smaller context counts where it takes a tenth off the step.
  bool smaller(const StepShape& step) const;
  // NaN with fewer than three steps.
  CostError cross_validation() const;

 private:
  // A fitted forward; rows may be those of a level.
  struct Forward {
    bool single = false;               // whether forwards with one row a sequence have terms of their own
    std::vector<double> knots;         // rows, rising; the first is 0
    std::vector<double> coefficients;  // of terms()
    std::vector<double> terms(double rows, double batch, double context) const;
    double seconds(double rows, double batch, double context) const;
  };
  void fit_other();
  void fit_draft();

  std::vector<CostedStep> steps_;
  PromptCosts prompt_;
  Forward other_, level_;
  double draft_fixed_ = 0;
  // Extents of measured steps; depth and nodes are of those with a draft.
  struct Extent {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    void add(double value) { least = std::min(least, value), most = std::max(most, value); }
    bool above(double value) const;
    bool below(double value) const;
  };
  Extent rows_, batch_, depth_, context_, nodes_;  // nodes: of a sequence's level
};

// c >= 0 with the least |A c - b|^2, by coordinate descent on the normal equations. rows: of A, all equally long.
std::vector<double> nonnegative_least_squares(const std::vector<std::vector<double>>& rows,
                                              const std::vector<double>& b);

}  // namespace foretoken

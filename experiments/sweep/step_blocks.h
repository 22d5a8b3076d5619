// Times of steps that do the same, in the order in which they were taken, as medians of blocks: what a change of the
// machine's speed shows in. This module must not know what is made of them.
#pragma once
#include <map>
#include <vector>

#include "experiments/report/result.h"

namespace foretoken {

class StepBlocks {
 public:
  // A step of so many rows of the target's forward took so long without drafting; its sequences had `context` tokens
  // in all.
  void add(int rows, double seconds, double context) { steps_[rows].push_back({seconds, context}); }

  // Of the number of rows that most steps had, at most 32 blocks of at least eight steps each; the last steps may be
  // left out.
  BlockTimes times() const;

 private:
  struct Step {
    double seconds, context;
  };
  std::map<int, std::vector<Step>> steps_;  // by rows
};

}  // namespace foretoken

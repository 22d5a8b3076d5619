// Whether the first drafts of a run are accepted as often as their own probabilities expect. A head with a wrong state,
// norm or slot computes something all the same, and only its acceptance shows the fault. This module must not know
// drafters.
#pragma once
#include <string>

#include "framework/engine/judging.h"

namespace foretoken {

class FirstDrafts {
 public:
  // What is measured: a device then computes no more for it.
  static constexpr int kTests = 200;
  bool measured() const { return tests_ >= kTests; }
  // After a step's readback (Readback::chances).
  void add(const Readback& read);
  // One sentence where less than half of what was expected was accepted; else empty. `drafter`: "the drafter 'eagle'".
  std::string doubt(const std::string& drafter) const;

 private:
  int tests_ = 0, accepted_ = 0;
  double expected_ = 0;
};

}  // namespace foretoken

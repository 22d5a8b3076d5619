// How much to draft: a cap per sequence, from the past alone. It never sees drawn tokens of the coming round, since a
// length that depends on them changes the output distribution.
#pragma once
#include <span>
#include <vector>

#include "framework/decode/sequence.h"

namespace foretoken {

// What a policy may look at.
struct PastOnly {
  SequenceId id = 0;
  int length = 0;          // tokens so far
  int batch = 0;           // sequences in this step
  int rounds = 0;          // rounds so far
  int drafted = 0;         // nodes drafted in the last round
  int accepted = 0;        // of these
  double acceptance = -1;  // accepted / tested over the sequence's rounds; -1 before the first
};

class LengthPolicy {
 public:
  virtual ~LengthPolicy() = default;
  virtual int longest() const = 0;  // no budget exceeds it; <= kMaxPath
  // One for each sequence. Where it throws it is asked again, as Drafter::draft is.
  virtual std::vector<int> budgets(std::span<const PastOnly> past) = 0;
};

}  // namespace foretoken

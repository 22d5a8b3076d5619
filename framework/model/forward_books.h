// The books of one user of a model's weights: how long its forwards took on the device, how many there were, what they
// read, and the memory that they keep. This module must not know what they compute.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "framework/model/forward_memory.h"

namespace foretoken {

// The weights that it uses.
struct UsedWeights {
  std::uint64_t serial = 0;    // as Model::serial()
  std::int64_t bytes = 0;      // that they take in memory
  std::int64_t row_bytes = 0;  // of a position in the cache beside them; 0: there is none
};

// Forwards since the start.
struct ForwardTotals {
  std::uint64_t forwards = 0, with_logits = 0;
  std::uint64_t rows = 0;   // without padding
  double weight_bytes = 0;  // that were read
  double row_bytes = 0;     // the same, a forward's bytes counted for each of its rows
  // Rows of its sequences in the cache that forwards with logits did not read, since a view left their pages out.
  double left_out = 0;
};

class ForwardBooks {
 public:
  ForwardBooks(Backend& backend, std::shared_ptr<ForwardMemory> memory, UsedWeights weights)
      : backend_(backend), memory_(std::move(memory)), weights_(weights) {}

  // A forward that began at `begin` and ends now; `wanted` of its rows have logits, it read so many bytes of weights,
  // and did not read so many rows of the cache (ForwardTotals::left_out).
  void add(Mark begin, int rows, int wanted, std::int64_t weight_bytes, std::int64_t left_out = 0);
  double seconds();  // in forwards since the start; after Backend::synchronize()
  const ForwardTotals& totals() const { return totals_; }
  const UsedWeights& weights() const { return weights_; }
  ForwardMemory& memory() { return *memory_; }
  std::int64_t output_bytes() const;  // of its memory for logits and features, used or not

 private:
  Backend& backend_;
  std::shared_ptr<ForwardMemory> memory_;  // lent while this object lives
  UsedWeights weights_;
  ForwardTotals totals_;
  std::vector<std::pair<Mark, Mark>> spans_;  // begin and end of forwards that seconds_ does not contain yet
  double seconds_ = 0;
};

}  // namespace foretoken

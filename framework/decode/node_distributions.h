// The distributions after nodes of draft trees: the logits that a model gave there, bent as the sequence's options ask
// (biases, and penalties for what the sequence and the node's own ancestors have said), then warped. The engine asks
// for the target's distributions here, a drafter for its own, so that p and q are bent alike. A drafter that asks
// Backend::distribution instead is exact all the same, since q is whatever its tokens were drawn from; it is only
// refused more often. This module must not know models, caches or verifiers.
#pragma once
#include <map>
#include <span>
#include <utility>

#include "framework/decode/draft_tree.h"
#include "framework/decode/sequence.h"
#include "kernels/staging.h"

namespace foretoken {

// Which distribution a row of logits is: that of the token after `node` of `tree`, which hangs below the sequence's
// last token.
struct DistributionAfter {
  const Sequence* sequence = nullptr;
  const DraftTree* tree = nullptr;
  int node = 0;
  Warp warp;
};

class NodeDistributions {
 public:
  explicit NodeDistributions(Backend& backend) : backend_(backend), count_staging_(backend), path_staging_(backend) {}

  // logits [n, vocab], one row for each of `rows`; rows that are bent are bent in place. Costs what
  // Backend::distribution costs where no sequence asks for anything.
  Distributions of(const Tensor& logits, std::span<const DistributionAfter> rows);
  // The distributions of the same logits as the model gave them, of a copy, to be asked for before `of`: absent unless
  // some row that is bent asks for its raw normalizer.
  Distributions raw(const Tensor& logits, std::span<const DistributionAfter> rows);

 private:
  // What the device holds of a sequence's tally.
  struct Staged {
    int length;  // of the sequence then
    const TokenCount* said;
    int count;
  };
  void stage_tallies(std::span<const DistributionAfter> rows);
  // Per row, where its path begins in the tokens that come with it and how many there are.
  Tensor stage_paths(std::span<const DistributionAfter> rows, std::vector<std::pair<int, int>>& spans);

  Backend& backend_;
  Staging count_staging_, path_staging_;
  std::map<SequenceId, Staged> staged_;
};

}  // namespace foretoken

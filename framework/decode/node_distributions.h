// The distributions at nodes of draft trees: a model's logits, adjusted by the sequence's options (biases, penalties
// for tokens of the sequence and of the node's ancestors, and a constraint), then warped. The engine computes the
// target's distributions here and a drafter its own, so that p and q are adjusted alike. A drafter that uses
// Backend::distributions instead remains exact, since q is the distribution of its draws; its tokens are only rejected
// more often. A constraint is masked where the host knows the tokens of the node's path, as it does of the target's
// trees (Judging::read_constrained): drafters do not wait for a device for its sake, nor do they draft nothing where
// their vocabulary lacks all tokens that may come. This module must not know models,
// caches or verifiers.
#pragma once
#include <map>
#include <span>
#include <utility>

#include "framework/decode/draft_tree.h"
#include "framework/decode/sequence.h"
#include "kernels/staging.h"

namespace foretoken {

// Which distribution a row of logits gives: that of the token after `node` of `tree`, whose root is the sequence's last
// token.
struct DistributionAfter {
  const Sequence* sequence = nullptr;
  const DraftTree* tree = nullptr;
  int node = 0;
  Warp warp;
};

class NodeDistributions {
 public:
  explicit NodeDistributions(Backend& backend)
      : backend_(backend), count_staging_(backend), path_staging_(backend), mask_staging_(backend) {}

  // logits [n, vocab], one row for each of `rows`; adjusted in place. Without adjustments it costs the same as
  // Backend::distributions.
  Distributions of(const Tensor& logits, std::span<const DistributionAfter> rows);
  // The distributions of the same logits before adjustment, from a copy; to be called before `of`. Absent unless an
  // adjusted row needs its raw normalizer.
  Distributions raw(const Tensor& logits, std::span<const DistributionAfter> rows);

 private:
  // The device's copy of a sequence's tally.
  struct Staged {
    int length;  // of the sequence at that time; -1: not to be used again
    const TokenCount* token_counts;
    int size;
  };
  void stage_tallies(std::span<const DistributionAfter> rows);
  // Per row, the begin and length of its path in the list of tokens.
  Tensor stage_paths(std::span<const DistributionAfter> rows, int vocab, std::vector<std::pair<int, int>>& spans);
  void mask(const Tensor& logits, std::span<const DistributionAfter> rows);

  Backend& backend_;
  Staging count_staging_, path_staging_, mask_staging_;
  std::map<SequenceId, Staged> staged_;
};

}  // namespace foretoken

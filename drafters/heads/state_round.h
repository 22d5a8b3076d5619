// Heads in a round of a drafter that read the target's last state of the position before the root, and need no cache:
// Medusa (Cai et al. 2024, arXiv 2401.10774) and Hydra (Ankner et al. 2024, arXiv 2402.05109). This module must not
// know what they compute.
#pragma once
#include <unordered_map>

#include "drafters/heads/path_forward.h"
#include "framework/components/host.h"
#include "framework/components/level_model.h"

namespace foretoken {

class StateRound : public LevelModel {
 public:
  // `books`: of the forwards. `levels`: so many levels of a tree have a head; a forward gives the logits of `at_once`
  // of them at most.
  StateRound(Host& host, std::shared_ptr<ForwardBooks> books, int levels, int at_once)
      : target_(host.target()),
        levels_(levels),
        distributions_(host.backend()),
        forward_(host.backend(), std::move(books), target_.vocab, std::int64_t(at_once) * target_.vocab) {}

  Budget budget(const DraftRequest& r) const override;
  // Drafts from the second round on, as RoundModel does with states of the target.
  First begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
              const std::function<int(const DraftRequest&)>& fed) override;
  int levels() const override { return levels_; }
  Distributions distributions(const Output& out, std::span<const DistributionAfter> rows) override {
    return distributions_.of(out.logits, rows);
  }
  void forget(const Sequence&) override {}
  const ModelInfo& info() const override { return target_; }

 protected:
  // No tokens and no features yet, `path` tokens a row.
  PathRows rows(const Segment& first, int path) const;
  // The state of the segment's sequence as the features of one more row.
  void add_state(const Segment& s, PathRows& rows) const;

  const ModelInfo& target_;
  const int levels_;
  int most_ = 0;   // of them, those that a budget of this round allows
  int level_ = 0;  // of the next run() of this round
  NodeDistributions distributions_;
  PathForward forward_;

 private:
  std::unordered_map<SequenceId, HiddenStates> hidden_;  // of the current round
};

}  // namespace foretoken

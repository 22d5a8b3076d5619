// Kangaroo's adapter in a round of a drafter. It reads the state of each token's own position, which the target has of
// the tokens before the root alone. So a part of the target, on a view of its cache, is run on the root and on each
// level below it, and its states go to the adapter, which has a cache of its own. It keeps only rows that are made of
// the target's own states. This module must not know how tokens are chosen or which shape a tree has.
#pragma once
#include <memory>
#include <vector>

#include "framework/components/host.h"
#include "framework/components/level_model.h"

namespace foretoken {

class KangarooRound : public LevelModel {
 public:
  // `part`: of the target, without its head (LeftOut::head); its features are the target's states at `exit`, which the
  // drafter's Needs::hidden names.
  KangarooRound(Host& host, std::shared_ptr<Model> part, std::shared_ptr<Model> adapter, Tap exit);

  Budget budget(const DraftRequest& r) const override;
  // Drafts from the second round on, as RoundModel does with states of the target.
  First begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
              const std::function<int(const DraftRequest&)>& fed) override;
  Output run(std::span<const Segment> segments) override;
  Distributions distributions(const Output& out, std::span<const DistributionAfter> rows) override {
    return distributions_.of(out.logits, rows);
  }
  void forget(const Sequence& sequence) override { part_->forget(sequence), adapter_->forget(sequence); }
  const ModelInfo& info() const override { return adapter_->info(); }

 private:
  std::shared_ptr<CachedModel> part_, adapter_;
  NodeDistributions distributions_;
  std::vector<Tap> taps_;
};

}  // namespace foretoken

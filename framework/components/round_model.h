// A draft model, or a draft head, in a round of a drafter: it reads the tokens that its cache lacks, then is fed draft
// trees level by level. A head reads each token with states of the target, and drafted ones with its own features of
// the node above (Li et al. 2024, EAGLE, arXiv 2401.15077). What drafters that have a model share. This module must not
// know how tokens are chosen or which shape a tree has.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "framework/components/host.h"
#include "framework/components/level_model.h"
#include "framework/components/registry.h"

namespace foretoken {

class RoundModel : public LevelModel {
 public:
  // `taps`: of a head (Model::features), the states of the target that it reads, in this order; the drafter's
  // Needs::hidden names them.
  RoundModel(Host& host, std::shared_ptr<Model> model, std::vector<Tap> taps = {});
  // Of a part of the target (Host::view_of_target), which has nothing to read.
  RoundModel(Host& host, std::shared_ptr<CachedModel> part);

  // Within the context of this model, which may be shorter than the target's: the deepest node that is fed must lie in
  // it.
  Budget budget(const DraftRequest& r) const override;
  // Feeds the tokens that the cache lacks, up to the root of `trees` (one for each request) where rows and pages
  // suffice. Pages are reserved for all rows of `fed`.
  First begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
              const std::function<int(const DraftRequest&)>& fed) override;
  Output run(std::span<const Segment> segments) override;
  Distributions distributions(const Output& out, std::span<const DistributionAfter> rows) override {
    return distributions_.of(out.logits, rows);
  }
  void forget(const Sequence& sequence) override { model_->forget(sequence); }
  const ModelInfo& info() const override { return model_->info(); }

 private:
  void give_states(const Segment& s);
  void give_features(const Segment& s);
  void note_features(std::span<const Segment> segments, const Output& out);

  std::shared_ptr<CachedModel> model_;
  NodeDistributions distributions_;
  std::vector<Tap> taps_;
  // Of the current round of a head:
  std::unordered_map<SequenceId, HiddenStates> hidden_;
  std::unordered_map<const DraftTree*, std::vector<std::uint64_t>> features_;  // device addresses, by node
  std::vector<Tensor> outputs_;                                                // what these addresses lie in
  std::vector<std::uint64_t> inputs_;                                          // of the current forward
};

// The options "model", "inflate", "dtype" and "kv_dtype" of a drafter with a model, and `more`.
std::vector<Option> with_model(std::vector<Option> more);
// The option "temperature" of the draft's distributions; absent: the sequence's own.
Option draft_temperature();
// Its value. A temperature too small to divide by is an Error that names `drafter`.
std::optional<float> read_draft_temperature(const nlohmann::json& options, const std::string& drafter);
// The warp of the draft's distributions for a sequence.
Warp draft_warp(const Sequence& sequence, std::optional<float> temperature);

}  // namespace foretoken

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
#include "framework/components/registry.h"
#include "framework/decode/node_distributions.h"

namespace foretoken {

class RoundModel {
 public:
  // `taps`: of a head (Model::features), the states of the target that it reads, in this order; the drafter's
  // Needs::hidden names them.
  RoundModel(Host& host, std::shared_ptr<Model> model, std::vector<Tap> taps = {});
  // Of a part of the target (Host::view_of_target), which has nothing to read.
  RoundModel(Host& host, std::shared_ptr<CachedModel> part);

  // The budget of a request within the context of this model, which may be shorter than the target's: the deepest node
  // that is fed must lie in it.
  Budget budget(const DraftRequest& r) const;

  // The first forward of a round.
  struct First {
    std::vector<Segment> segments;  // those with a tree, in the order of `active`, then those without
    std::vector<int> active;        // the requests whose root is fed, and which may therefore be drafted for
  };
  // Feeds the tokens that the cache lacks, up to the root of `trees` (one for each request) where rows and pages
  // suffice. `fed`: the most rows of a request's tree that the drafter feeds in this round, the root among them; pages
  // are reserved for all of them.
  First begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
              const std::function<int(const DraftRequest&)>& fed);
  // One forward: the logits of the fed nodes, segment after segment (CachedModel::run). First the segments of begin(),
  // then those of nodes whose parents were fed in this round.
  Output run(std::span<const Segment> segments);
  // The distributions of these logits, adjusted as the target's are.
  Distributions distributions(const Output& out, std::span<const DistributionAfter> rows) {
    return distributions_.of(out.logits, rows);
  }
  void forget(const Sequence& sequence) { model_->forget(sequence); }
  const ModelInfo& info() const { return model_->info(); }

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

}  // namespace foretoken

// A draft model in a round of a drafter: it reads the tokens that its cache lacks, then is fed draft trees level by
// level. What drafters that have a model share. This module must not know how tokens are chosen or which shape a tree
// has.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "framework/components/host.h"
#include "framework/components/registry.h"
#include "framework/decode/node_distributions.h"

namespace foretoken {

class RoundModel {
 public:
  RoundModel(Host& host, std::shared_ptr<Model> model);

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
  // One forward: the logits of the fed nodes, segment after segment (CachedModel::run).
  Output run(std::span<const Segment> segments) { return model_->run(segments); }
  // The distributions of these logits, adjusted as the target's are.
  Distributions distributions(const Output& out, std::span<const DistributionAfter> rows) {
    return distributions_.of(out.logits, rows);
  }
  void forget(const Sequence& sequence) { model_->forget(sequence); }

 private:
  std::shared_ptr<CachedModel> model_;
  NodeDistributions distributions_;
};

// The options "model", "inflate", "dtype" and "kv_dtype" of a drafter with a model, and `more`.
std::vector<Option> with_model(std::vector<Option> more);
// The option "temperature" of the draft's distributions; absent: the sequence's own.
Option draft_temperature();
// Its value. A temperature too small to divide by is an Error that names `drafter`.
std::optional<float> read_draft_temperature(const nlohmann::json& options, const std::string& drafter);

}  // namespace foretoken

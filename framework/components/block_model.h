// A draft head that proposes a block in one forward, in a round of a drafter (DFlash, arXiv 2602.06036). Its cache has
// rows made of the target's states alone, one for each position of the sequence but the last. So a round has two
// forwards: the first makes the rows of positions that the target has computed meanwhile, the second feeds the block
// (the sequence's last token, the anchor, then mask tokens), of which no row is kept. This module must not know how
// tokens are chosen.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "framework/components/drafter.h"
#include "framework/components/host.h"
#include "framework/decode/node_distributions.h"

namespace foretoken {

struct Block {
  int rows = 0;        // the anchor among them
  Token mask = -1;     // of all rows but the anchor
  bool mutual = true;  // its rows attend to one another in both directions; else to those before
  int first = 0;       // the row whose logits are those of the first draft: 0, or 1
  int drafts() const { return rows - first; }
};

class BlockModel {
 public:
  // `taps`: the states of the target that the model reads (Model::reads_states), in this order; the drafter's
  // Needs::hidden names them.
  BlockModel(Host& host, std::shared_ptr<Model> model, std::vector<Tap> taps, Block block);

  // How many tokens may be drafted for a request: within its budget, and none where the block leaves the context.
  int drafts(const DraftRequest& r) const;

  struct Round {
    std::vector<int> active;        // the requests that may be drafted for
    std::vector<DraftTree> blocks;  // of them: what was fed
    Output out;                     // of all rows of their blocks
  };
  Round run(std::span<const DraftRequest> requests);
  // The logits of draft k (1: the first) of every block: f32 [blocks, vocab], a view.
  Tensor logits(const Round& round, int k) const;
  // The distributions of such logits, adjusted as the target's are.
  Distributions distributions(const Tensor& logits, std::span<const DistributionAfter> rows) {
    return distributions_.of(logits, rows);
  }
  void forget(const Sequence& sequence) { model_->forget(sequence); }
  const ModelInfo& info() const { return model_->info(); }
  const Block& block() const { return block_; }

 private:
  Backend& backend_;
  std::shared_ptr<CachedModel> model_;
  NodeDistributions distributions_;
  std::vector<Tap> taps_;
  Block block_;
};

}  // namespace foretoken

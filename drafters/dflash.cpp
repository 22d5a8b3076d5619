// A head on states of the target drafts a block in one forward: mask tokens behind the sequence's last token attend to
// one another and to what the head's layers make of the states (Chen et al. 2026, DFlash, arXiv 2602.06036). No draft
// knows the tokens of the ones before it, so each is drawn from a marginal.
#include "drafters/confidence.h"
#include "drafters/drafters.h"
#include "drafters/heads/block_drafter.h"
#include "framework/components/round_model.h"

namespace foretoken {
namespace {

class DFlash : public Drafter {
 public:
  DFlash(Host& host, BlockDrafting drafting)
      : backend_(host.backend()), drafting_(std::move(drafting)), confidence_(backend_) {}

  void forget(const Sequence& sequence) override { drafting_.model.forget(sequence); }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    BlockModel& model = drafting_.model;
    std::vector<DraftTree> trees = rooted(backend_, requests);
    const BlockModel::Round round = model.run(requests);
    if (round.active.empty()) return trees;
    std::vector<DistributionAfter> rows;
    std::vector<float> least;
    for (std::size_t b = 0; b < round.active.size(); ++b) {
      const DraftRequest& r = requests[std::size_t(round.active[b])];
      const Warp warp = draft_warp(*r.sequence, drafting_.temperature);
      for (int row = 0; row < model.block().rows; ++row) {
        rows.push_back({r.sequence, &round.blocks[b], std::max(0, row - model.block().first), warp});
        least.push_back(r.budget.confidence);
      }
    }
    const Distributions distributions = model.distributions(round.out.logits, rows);
    const std::vector<bool> sure = confidence_.sure(distributions, rows, least);
    std::vector<TokenDraw> draws;
    for (std::size_t b = 0; b < round.active.size(); ++b) {
      const DraftRequest& r = requests[std::size_t(round.active[b])];
      DraftTree& tree = trees[std::size_t(round.active[b])];
      const int first = int(b) * model.block().rows + model.block().first;
      for (int row = first; row < first + model.drafts(r) && sure[std::size_t(row)]; ++row) {
        const int draft = tree.grow(tree.nodes - 1, Drawn::marginals);
        tree.q.distributions.push_back(distributions.slice(row, 1));
        draws.push_back(r.draw(draft, draft));
        draws.back().row = row, draws.back().to = tree.tokens.row<Token>(draft);
      }
    }
    if (!draws.empty()) backend_.draw(distributions, draws, {});
    return trees;
  }

 private:
  Backend& backend_;
  BlockDrafting drafting_;
  Confidence confidence_;
};

}  // namespace

Entry<Drafter> dflash() {
  return block_entry(
      {.name = "dflash",
       .summary = "a DFlash head: a block of tokens from one forward on hidden states of the target",
       .source = "arXiv 2602.06036",
       .draws = Drawn::marginals,
       .make = [](Host& host, BlockDrafting drafting) { return std::make_unique<DFlash>(host, std::move(drafting)); }});
}

}  // namespace foretoken

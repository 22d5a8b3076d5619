// A head on states of the target drafts a block in one forward: mask tokens behind the sequence's last token attend to
// one another and to what the head's layers make of the states (Chen et al. 2026, DFlash, arXiv 2602.06036). No draft
// knows the tokens of the ones before it, so each is drawn from a marginal.
#include "drafters/drafters.h"
#include "drafters/heads/block_drafter.h"
#include "framework/components/round_model.h"

namespace foretoken {
namespace {

class DFlash : public Drafter {
 public:
  DFlash(Host& host, BlockDrafting drafting) : backend_(host.backend()), drafting_(std::move(drafting)) {}

  void forget(const Sequence& sequence) override { drafting_.model.forget(sequence); }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    BlockModel& model = drafting_.model;
    std::vector<DraftTree> trees = rooted(backend_, requests);
    const BlockModel::Round round = model.run(requests);
    if (round.active.empty()) return trees;
    std::vector<DistributionAfter> rows;
    std::vector<TokenDraw> draws;
    for (std::size_t b = 0; b < round.active.size(); ++b) {
      const DraftRequest& r = requests[std::size_t(round.active[b])];
      const Warp warp = draft_warp(*r.sequence, drafting_.temperature);
      for (int row = 0; row < model.block().rows; ++row) {
        const int draft = row - model.block().first + 1;
        if (draft >= 1 && draft <= model.drafts(r)) {
          draws.push_back(r.draw(draft, draft));
          draws.back().row = std::int32_t(rows.size());
          draws.back().to = trees[std::size_t(round.active[b])].tokens.row<Token>(draft);
        }
        rows.push_back({r.sequence, &round.blocks[b], std::max(0, draft - 1), warp});
      }
    }
    const Distributions distributions = model.distributions(round.out.logits, rows);
    backend_.draw(distributions, draws, {});
    for (const TokenDraw& d : draws) grow(trees[std::size_t(round.active[block_of(d)])], distributions.slice(d.row, 1));
    return trees;
  }

 private:
  std::size_t block_of(const TokenDraw& d) const { return std::size_t(d.row / drafting_.model.block().rows); }
  static void grow(DraftTree& tree, const Distributions& q) {
    tree.grow(tree.nodes - 1, Drawn::marginals);
    tree.q.distributions.push_back(q);
  }

  Backend& backend_;
  BlockDrafting drafting_;
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

// A DFlash head whose logits are corrected, token after token, by the token drafted before: so each is drawn from its
// true conditional, although the head runs once (DSpark, arXiv 2607.05147).
#include "drafters/confidence.h"
#include "drafters/drafters.h"
#include "drafters/heads/block_drafter.h"
#include "framework/components/round_model.h"

namespace foretoken {
namespace {

class DSpark : public Drafter {
 public:
  DSpark(Host& host, BlockDrafting drafting)
      : backend_(host.backend()), drafting_(std::move(drafting)), confidence_(backend_), staging_(backend_) {}

  void forget(const Sequence& sequence) override { drafting_.model.forget(sequence); }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    const BlockModel::Round round = drafting_.model.run(requests);
    int longest = 0;
    for (const int i : round.active) longest = std::max(longest, drafts(requests[std::size_t(i)]));
    if (longest == 0) return trees;
    stage(requests, round, trees, longest);
    for (int depth = 1; depth <= longest; ++depth)
      if (!extend(requests, round, trees, depth)) break;
    return trees;
  }

 private:
  int drafts(const DraftRequest& r) const { return drafting_.model.drafts(r); }

  // Where the tokens before those of each depth will be, for all depths at once: the roots, which the host knows, then
  // drafted ones. Blocks whose tree ends before have none.
  void stage(std::span<const DraftRequest> requests, const BlockModel::Round& round, std::span<const DraftTree> trees,
             int longest) {
    const std::int64_t n = std::int64_t(round.active.size());
    staging_.begin(longest * n * 12 + 2 * Staging::kAlignment);
    const auto known = staging_.array({longest, n}, DType::i32), at = staging_.array({longest, n}, DType::u64);
    for (int depth = 1; depth <= longest; ++depth)
      for (std::int64_t b = 0; b < n; ++b) {
        const std::size_t i = std::size_t(round.active[std::size_t(b)]);
        const bool drafted = depth > 1 && depth <= drafts(requests[i]);
        known.host.row<Token>(depth - 1)[b] = depth == 1 ? requests[i].sequence->last() : -1;
        at.host.row<const Token*>(depth - 1)[b] = drafted ? trees[i].tokens.row<Token>(depth - 1) : nullptr;
      }
    staging_.push();
    known_ = known.device, at_ = at.device;
  }

  // Draws the tokens of one depth in all blocks that reach it; false where none does, since all are unsure before
  // (Budget::confidence).
  bool extend(std::span<const DraftRequest> requests, const BlockModel::Round& round, std::span<DraftTree> trees,
              int depth) {
    const std::int64_t n = std::int64_t(round.active.size());
    const Tensor before = backend_.allocate({n}, DType::i32), logits = drafting_.model.logits(round, depth);
    backend_.pick(known_.rows(depth - 1, 1).reshaped({n}), at_.rows(depth - 1, 1).reshaped({n}), before,
                  drafting_.model.info().vocab);
    drafting_.head->correct(backend_, logits, before);
    std::vector<DistributionAfter> rows;
    std::vector<float> least;  // of chains that may still grow
    for (const int i : round.active) {
      const DraftRequest& r = requests[std::size_t(i)];
      const DraftTree& tree = trees[std::size_t(i)];
      rows.push_back({r.sequence, &tree, tree.nodes - 1, draft_warp(*r.sequence, drafting_.temperature)});
      least.push_back(depth <= drafts(r) && tree.nodes == depth ? r.budget.confidence : 0);
    }
    const Distributions distributions = drafting_.model.distributions(logits, rows);
    const std::vector<bool> sure = confidence_.sure(distributions, rows, least);
    std::vector<TokenDraw> draws;
    for (std::size_t b = 0; b < round.active.size(); ++b) {
      const DraftRequest& r = requests[std::size_t(round.active[b])];
      DraftTree& tree = trees[std::size_t(round.active[b])];
      if (!sure[b] || depth > drafts(r) || tree.nodes < depth) continue;
      draws.push_back(r.draw(depth, depth));
      draws.back().row = std::int32_t(b), draws.back().to = tree.tokens.row<Token>(depth);
      tree.grow(depth - 1, Drawn::chain);
      tree.q.distributions.push_back(distributions.slice(int(b), 1));
    }
    if (draws.empty()) return false;
    backend_.draw(distributions, draws, {});
    return true;
  }

  Backend& backend_;
  BlockDrafting drafting_;
  Confidence confidence_;
  Staging staging_;
  Tensor known_, at_;  // i32, u64 [depths, blocks]: Backend::pick
};

}  // namespace

Entry<Drafter> dspark() {
  return block_entry(
      {.name = "dspark",
       .summary = "a DSpark head: a block from one forward, each token corrected by the one before",
       .source = "arXiv 2607.05147",
       .corrects = true,
       .draws = Drawn::chain,
       .make = [](Host& host, BlockDrafting drafting) { return std::make_unique<DSpark>(host, std::move(drafting)); }});
}

}  // namespace foretoken

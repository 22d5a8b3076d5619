#include "framework/components/block_model.h"

#include <algorithm>

#include "framework/components/target_rows.h"

namespace foretoken {

BlockModel::BlockModel(Host& host, std::shared_ptr<Model> model, std::vector<Tap> taps, Block block)
    : backend_(host.backend()),
      model_(host.cache(std::move(model))),
      distributions_(host.backend()),
      taps_(std::move(taps)),
      block_(block) {
  model_->set_least_rows(block_.rows);
}

int BlockModel::drafts(const DraftRequest& r) const {
  return model_->fits(*r.sequence) ? std::min(r.budget.chain(), block_.drafts()) : 0;
}

BlockModel::Round BlockModel::run(std::span<const DraftRequest> requests) {
  Round round;
  const auto complete = read_target(*model_, taps_, requests, [&](const DraftRequest& r) { return drafts(r) > 0; });
  std::vector<DraftTree::Root> roots;
  for (const int i : complete) {
    const Sequence& s = *requests[std::size_t(i)].sequence;
    (void)model_->unseen(s);  // the rows of the first forward become the sequence's
    if (!model_->reserve(s, block_.rows)) continue;
    round.active.push_back(i), roots.push_back({s.last(), block_.rows - 1});
  }
  if (roots.empty()) return round;
  round.blocks = DraftTree::rooted(backend_, roots);
  std::vector<Segment> segments;
  for (std::size_t b = 0; b < roots.size(); ++b) {
    for (int row = 1; row < block_.rows; ++row) round.blocks[b].guess(row - 1, block_.mask);
    segments.push_back({.sequence = requests[std::size_t(round.active[b])].sequence,
                        .tree = &round.blocks[b],
                        .approximate = 0,
                        .mutual = block_.mutual});
  }
  round.out = model_->run(segments);
  return round;
}

Tensor BlockModel::logits(const Round& round, int k) const {
  const Tensor& all = round.out.logits;
  const std::int64_t row = block_.first + k - 1;
  return {all.owner(), all.row<float>(row), {std::int64_t(round.active.size()), all.dim(1)},
          all.dtype(), all.device(),        block_.rows * all.row_stride()};
}

}  // namespace foretoken

#include "framework/components/block_model.h"

#include <algorithm>

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
  std::vector<int> complete;  // requests of which no state is missing
  read_states(requests, complete);
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

// Makes rows of the target's states, and finds the requests that may be drafted for when they are made.
void BlockModel::read_states(std::span<const DraftRequest> requests, std::vector<int>& complete) {
  std::vector<Segment> segments;
  std::vector<std::uint64_t> addresses;
  RowInputs form;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& r = requests[i];
    if (r.rows == 0 || r.sequence->length() > info().positions) continue;
    const int unseen = int(model_->unseen(*r.sequence).size()), begin = model_->cache().confirmed(r.sequence->id);
    // While a prompt is read, the target has no states of its last tokens.
    const int rows = std::min({unseen - 1, r.rows, r.hidden.rows() - begin});
    // It drafts from the second round on: whether the first one has states depends on prefixes that others read.
    if (unseen <= r.rows && rows == unseen - 1 && drafts(r) > 0 && r.sequence->generated() > 0)
      complete.push_back(int(i));
    if (rows <= 0) continue;
    if (!model_->reserve(*r.sequence, rows)) {
      std::erase(complete, int(i));
      continue;
    }
    segments.push_back({r.sequence, rows});
    form = r.hidden.form(taps_);
    for (int at = begin; at < begin + rows; ++at) r.hidden.append(at, taps_, addresses);
  }
  std::size_t at = 0;
  for (Segment& s : segments) {
    const std::size_t n = std::size_t(s.chain) * std::size_t(form.pieces);
    s.inputs = std::span(addresses).subspan(at, n), at += n;
  }
  if (!segments.empty()) (void)model_->run(segments, form);
}

Tensor BlockModel::logits(const Round& round, int k) const {
  const Tensor& all = round.out.logits;
  const std::int64_t row = block_.first + k - 1;
  return {all.owner(), all.row<float>(row), {std::int64_t(round.active.size()), all.dim(1)},
          all.dtype(), all.device(),        block_.rows * all.row_stride()};
}

}  // namespace foretoken

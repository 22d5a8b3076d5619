#include "drafters/heads/kangaroo_round.h"

#include <algorithm>

namespace foretoken {

KangarooRound::KangarooRound(Host& host, std::shared_ptr<Model> part, std::shared_ptr<Model> adapter, Tap exit)
    : part_(host.view_of_target(std::move(part))),
      adapter_(host.cache(std::move(adapter))),
      distributions_(host.backend()),
      taps_{exit} {}

Budget KangarooRound::budget(const DraftRequest& r) const {
  Budget b = r.budget;
  const int positions = std::min(part_->info().positions, adapter_->info().positions);
  b.depth = std::min(b.depth, positions - r.sequence->length() + 1);
  return b.or_root();
}

LevelModel::First KangarooRound::begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
                                       const std::function<int(const DraftRequest&)>& fed) {
  First first;
  for (const int i : read_states(requests)) {
    const DraftRequest& r = requests[std::size_t(i)];
    const Sequence& s = *r.sequence;
    (void)adapter_->unseen(s);  // the rows of the first forward become the sequence's
    if (part_->unseen(s).size() != 1 || !adapter_->reserve(s, fed(r)) || !part_->reserve(s, fed(r))) continue;
    first.active.push_back(i), first.segments.push_back({&s, 0, &trees[std::size_t(i)], 0});
  }
  return first;
}

// Makes the adapter's rows of tokens of which the target has states, and finds the requests that may be drafted for
// when they are made: those that lack the root's row alone.
std::vector<int> KangarooRound::read_states(std::span<const DraftRequest> requests) {
  std::vector<int> complete;
  std::vector<Segment> segments;
  std::vector<std::uint64_t> addresses;
  RowInputs form;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& r = requests[i];
    if (r.rows == 0 || r.sequence->length() > info().positions) continue;
    const int unseen = int(adapter_->unseen(*r.sequence).size()), begin = adapter_->cache().confirmed(r.sequence->id);
    // While a prompt is read, the target has no states of its last tokens.
    const int rows = std::min({unseen - 1, r.rows, r.hidden.rows() - begin});
    // What reads of the target drafts from the second round on: RoundModel::begin.
    const bool root = unseen <= r.rows && rows == unseen - 1 && budget(r).drafts() && r.sequence->generated() > 0;
    if (rows > 0 && !adapter_->reserve(*r.sequence, rows)) continue;
    if (root) complete.push_back(int(i));
    if (rows <= 0) continue;
    segments.push_back({r.sequence, rows});
    form = r.hidden.form(taps_);
    for (int at = begin; at < begin + rows; ++at) r.hidden.append(at, taps_, addresses);
  }
  std::size_t at = 0;
  for (Segment& s : segments) {
    const std::size_t n = std::size_t(s.chain) * std::size_t(form.pieces);
    s.inputs = std::span(addresses).subspan(at, n), at += n;
  }
  if (!segments.empty()) (void)adapter_->run(segments, form);
  return complete;
}

Output KangarooRound::run(std::span<const Segment> segments) {
  if (segments.empty()) return {};
  const Tensor states = part_->run(segments).features;
  std::vector<std::uint64_t> addresses;
  for (std::int64_t row = 0; row < states.dim(0); ++row)
    addresses.push_back(std::uint64_t(reinterpret_cast<std::uintptr_t>(states.row<float>(row))));
  std::vector<Segment> fed(segments.begin(), segments.end());
  std::size_t at = 0;
  for (Segment& s : fed) {
    const std::size_t n = std::size_t(s.tree->nodes - s.begin);
    s.inputs = std::span(addresses).subspan(at, n), at += n;
    s.approximate = s.begin;  // the target keeps its states in a type of its own
  }
  return adapter_->run(fed, RowInputs{1, part_->info().width});
}

}  // namespace foretoken

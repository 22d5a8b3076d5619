#include "drafters/heads/kangaroo_round.h"

#include <algorithm>

#include "framework/components/target_rows.h"

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
  const auto drafts = [&](const DraftRequest& r) { return budget(r).drafts(); };
  for (const int i : read_target(*adapter_, taps_, requests, drafts)) {
    const DraftRequest& r = requests[std::size_t(i)];
    const Sequence& s = *r.sequence;
    (void)adapter_->unseen(s);  // the rows of the first forward become the sequence's
    if (part_->unseen(s).size() != 1 || !adapter_->reserve(s, fed(r)) || !part_->reserve(s, fed(r))) continue;
    first.active.push_back(i), first.segments.push_back({&s, 0, &trees[std::size_t(i)], 0});
  }
  return first;
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

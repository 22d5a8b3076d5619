#include "drafters/heads/state_round.h"

#include <algorithm>
#include <array>

namespace foretoken {
namespace {

constexpr std::array kRead{kNormed};

}  // namespace

Budget StateRound::budget(const DraftRequest& r) const {
  Budget b = r.budget;
  b.depth = std::min(b.depth, levels_);
  return b.or_root();
}

LevelModel::First StateRound::begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
                                    const std::function<int(const DraftRequest&)>&) {
  First first;
  hidden_.clear(), most_ = level_ = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& r = requests[i];
    if (!budget(r).drafts() || r.sequence->generated() == 0 || r.hidden.rows() < r.sequence->length() - 1) continue;
    hidden_[r.sequence->id] = r.hidden, most_ = std::max(most_, budget(r).depth);
    first.active.push_back(int(i)), first.segments.push_back({r.sequence, 0, &trees[i], 0});
  }
  return first;
}

PathRows StateRound::rows(const Segment& first, int path) const {
  return {.form = hidden_.at(first.sequence->id).form(kRead), .path = path};
}

void StateRound::add_state(const Segment& s, PathRows& rows) const {
  hidden_.at(s.sequence->id).append(s.sequence->length() - 2, kRead, rows.features);
}

}  // namespace foretoken

#include "framework/cache/pending_moves.h"

namespace foretoken {

void PendingMoves::end(const std::shared_ptr<const std::vector<KvLayer>>& layers) {
  if (rows_.size() > (tables_.empty() ? 0 : tables_.back().end)) tables_.push_back({layers, rows_.size()});
}

void PendingMoves::run() {
  if (tables_.empty()) return;
  std::vector<Moves> moves;
  moves.reserve(tables_.size());
  std::size_t begin = 0;
  for (const Table& t : tables_) {
    moves.push_back({*t.layers, std::span(rows_).subspan(begin, t.end - begin)});
    begin = t.end;
  }
  backend_.move(moves);
  rows_.clear(), tables_.clear();
}

}  // namespace foretoken

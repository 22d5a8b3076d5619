#include "framework/decode/node_distributions.h"

#include <algorithm>

namespace foretoken {
namespace {

bool bent(const LawAfter& row) { return row.sequence->tally.adjusts(); }

}  // namespace

Laws NodeLaws::of(const Tensor& logits, std::span<const LawAfter> rows) {
  std::vector<Warp> warps;
  for (const LawAfter& row : rows) warps.push_back(row.warp);
  if (std::ranges::any_of(rows, bent)) {
    stage_tallies(rows);
    std::vector<std::pair<int, int>> spans;
    const Tensor path = stage_paths(rows, spans);
    std::vector<Adjustment> adjustments(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!bent(rows[i])) continue;
      const Staged& s = staged_.at(rows[i].sequence->id);
      const auto [begin, length] = spans[i];
      adjustments[i] = {s.said, length > 0 ? path.row<Token>(begin) : nullptr, s.count, length,
                        rows[i].sequence->tally.penalties()};
    }
    backend_.adjust(logits, adjustments);
  }
  return backend_.law(logits, warps);
}

Laws NodeLaws::raw(const Tensor& logits, std::span<const LawAfter> rows) {
  if (std::ranges::none_of(rows, [](const LawAfter& row) { return bent(row) && row.warp.raw_normalizer; })) return {};
  const Tensor copy = backend_.allocate(logits.shape(), logits.dtype());
  backend_.copy(logits, copy);
  return backend_.law(copy, std::vector<Warp>(rows.size(), Warp{.raw_normalizer = true}));
}

// A drafter asks many times about sequences that have not grown: their tallies stay where they are.
void NodeLaws::stage_tallies(std::span<const LawAfter> rows) {
  const auto current = [&](const LawAfter& row) {
    const auto it = staged_.find(row.sequence->id);
    return !bent(row) || (it != staged_.end() && it->second.length == row.sequence->length());
  };
  if (std::ranges::all_of(rows, current)) return;
  staged_.clear();
  std::int64_t bytes = 0;
  for (const LawAfter& row : rows)
    if (bent(row) && staged_.try_emplace(row.sequence->id).second)
      bytes += std::int64_t(row.sequence->tally.said().size_bytes()) + Staging::kAlignment;
  said_room_.begin(bytes);
  for (const LawAfter& row : rows) {
    if (!bent(row) || staged_.at(row.sequence->id).length > 0) continue;
    const std::span<const Said> said = row.sequence->tally.said();
    const auto array = said_room_.array({std::int64_t(said.size()), std::int64_t(sizeof(Said))}, DType::u8);
    std::ranges::copy(said, reinterpret_cast<Said*>(array.host.raw()));
    staged_[row.sequence->id] = {row.sequence->length(), reinterpret_cast<const Said*>(array.device.raw()),
                                 int(said.size())};
  }
  said_room_.push();
}

Tensor NodeLaws::stage_paths(std::span<const LawAfter> rows, std::vector<std::pair<int, int>>& spans) {
  std::vector<std::pair<const DraftTree*, int>> nodes;
  for (const LawAfter& row : rows) {
    const int begin = int(nodes.size());
    if (row.sequence->tally.counts())
      for (int n = row.node; n > 0; n = *row.tree->parents.row<std::int32_t>(n)) nodes.emplace_back(row.tree, n);
    spans.emplace_back(begin, int(nodes.size()) - begin);
  }
  if (nodes.empty()) return {};
  const std::int64_t n = std::int64_t(nodes.size());
  path_room_.begin(n * 12 + 3 * Staging::kAlignment);
  const auto known = path_room_.array({n}, DType::i32), at = path_room_.array({n}, DType::u64);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto& [tree, node] = nodes[std::size_t(i)];
    *known.host.row<Token>(i) = *tree->known.row<Token>(node);
    *at.host.row<const Token*>(i) = tree->drawn_at(node);
  }
  path_room_.push();
  const Tensor path = backend_.allocate({n}, DType::i32);
  backend_.pick(known.device, at.device, path);
  return path;
}

}  // namespace foretoken

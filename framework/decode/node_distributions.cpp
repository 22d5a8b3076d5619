#include "framework/decode/node_distributions.h"

#include <algorithm>

namespace foretoken {
namespace {

bool adjusts(const DistributionAfter& row) { return row.sequence->tally.adjusts(); }

// The state of the constraint at a node; kBroken also where it is not to be masked there: the host does not know the
// path, or a token of it is absent.
Constraint::State constraint_state(const DistributionAfter& row) {
  std::vector<Token> path;
  for (int n = row.node; n > 0; n = *row.tree->parents.row<std::int32_t>(n)) {
    path.push_back(*row.tree->known.row<Token>(n));
    if (path.back() < 0) return Constraint::kBroken;
  }
  Constraint::State state = row.sequence->tally.state();
  for (auto t = path.rbegin(); t != path.rend() && state != Constraint::kBroken; ++t)
    state = row.sequence->tally.constraint()->after(state, *t);
  return state;
}

}  // namespace

Distributions NodeDistributions::of(const Tensor& logits, std::span<const DistributionAfter> rows) {
  std::vector<Warp> warps;
  for (const DistributionAfter& row : rows) warps.push_back(row.warp);
  if (std::ranges::any_of(rows, adjusts)) {
    stage_tallies(rows);
    std::vector<std::pair<int, int>> spans;
    const Tensor path = stage_paths(rows, int(logits.dim(1)), spans);
    std::vector<Adjustment> adjustments(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!adjusts(rows[i])) continue;
      const Staged& s = staged_.at(rows[i].sequence->id);
      const auto [begin, length] = spans[i];
      adjustments[i] = {s.token_counts, length > 0 ? path.row<Token>(begin) : nullptr, s.size, length,
                        rows[i].sequence->tally.penalties()};
    }
    backend_.adjust(logits, adjustments);
  }
  mask(logits, rows);
  return backend_.distributions(logits, warps);
}

Distributions NodeDistributions::raw(const Tensor& logits, std::span<const DistributionAfter> rows) {
  const auto changes = [](const DistributionAfter& row) { return adjusts(row) || row.sequence->tally.constraint(); };
  if (std::ranges::none_of(rows, [&](const DistributionAfter& row) { return changes(row) && row.warp.raw_normalizer; }))
    return {};
  const Tensor copy = backend_.allocate(logits.shape(), logits.dtype());
  backend_.copy(logits, copy);
  return backend_.distributions(copy, std::vector<Warp>(rows.size(), Warp{.raw_normalizer = true}));
}

// Nodes of one state have one mask. What is below a token that is not allowed is never reached: it stays as it is.
void NodeDistributions::mask(const Tensor& logits, std::span<const DistributionAfter> rows) {
  using Masked = std::pair<const Constraint*, Constraint::State>;
  std::vector<Masked> states(rows.size());
  std::map<Masked, const std::uint32_t*> masks;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].sequence->tally.constraint()) continue;
    states[i] = {rows[i].sequence->tally.constraint(), constraint_state(rows[i])};
    if (states[i].second != Constraint::kBroken) masks[states[i]] = nullptr;
  }
  if (masks.empty()) return;
  const std::int64_t words = (logits.dim(1) + 31) / 32;
  mask_staging_.begin(std::int64_t(masks.size()) * (words * 4 + Staging::kAlignment));
  for (auto& [state, bits] : masks) {
    const auto array = mask_staging_.array({words}, DType::i32);
    const std::span<std::uint32_t> allowed(reinterpret_cast<std::uint32_t*>(array.host.raw()), std::size_t(words));
    if (state.first->allowed(state.second, allowed)) bits = reinterpret_cast<const std::uint32_t*>(array.device.raw());
  }
  mask_staging_.push();
  std::vector<const std::uint32_t*> allowed(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (const auto it = masks.find(states[i]); it != masks.end()) allowed[i] = it->second;
  backend_.mask(logits, allowed);
}

// A drafter calls this several times before a sequence grows: its tally is then uploaded once.
void NodeDistributions::stage_tallies(std::span<const DistributionAfter> rows) {
  const auto current = [&](const DistributionAfter& row) {
    const auto it = staged_.find(row.sequence->id);
    return !adjusts(row) || (it != staged_.end() && it->second.length == row.sequence->length());
  };
  if (std::ranges::all_of(rows, current)) return;
  staged_.clear();
  std::int64_t bytes = 0;
  for (const DistributionAfter& row : rows)
    if (adjusts(row) && staged_.try_emplace(row.sequence->id).second)
      bytes += std::int64_t(row.sequence->tally.token_counts().size_bytes()) + Staging::kAlignment;
  count_staging_.begin(bytes);
  for (const DistributionAfter& row : rows) {
    if (!adjusts(row) || staged_.at(row.sequence->id).length != 0) continue;
    const std::span<const TokenCount> counts = row.sequence->tally.token_counts();
    const auto array = count_staging_.array({std::int64_t(counts.size()), std::int64_t(sizeof(TokenCount))}, DType::u8);
    std::ranges::copy(counts, reinterpret_cast<TokenCount*>(array.host.raw()));
    // Tokens that may be taken back are counted anew: what comes in their place may be as many.
    staged_[row.sequence->id] = {row.sequence->speculative() > 0 ? -1 : row.sequence->length(),
                                 reinterpret_cast<const TokenCount*>(array.device.raw()), int(counts.size())};
  }
  count_staging_.push();
}

Tensor NodeDistributions::stage_paths(std::span<const DistributionAfter> rows, int vocab,
                                      std::vector<std::pair<int, int>>& spans) {
  std::vector<std::pair<const DraftTree*, int>> nodes;
  for (const DistributionAfter& row : rows) {
    const int begin = int(nodes.size());
    if (row.sequence->tally.counts())
      for (int n = row.node; n > 0; n = *row.tree->parents.row<std::int32_t>(n)) nodes.emplace_back(row.tree, n);
    spans.emplace_back(begin, int(nodes.size()) - begin);
  }
  if (nodes.empty()) return {};
  const std::int64_t n = std::int64_t(nodes.size());
  path_staging_.begin(n * 12 + 3 * Staging::kAlignment);
  const auto known = path_staging_.array({n}, DType::i32), at = path_staging_.array({n}, DType::u64);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto& [tree, node] = nodes[std::size_t(i)];
    *known.host.row<Token>(i) = *tree->known.row<Token>(node);
    *at.host.row<const Token*>(i) = tree->drawn_at(node);
  }
  path_staging_.push();
  const Tensor path = backend_.allocate({n}, DType::i32);
  backend_.pick(known.device, at.device, path, vocab);
  return path;
}

}  // namespace foretoken

#include "framework/cache/draft_readback.h"

#include <limits>

namespace foretoken {

void DraftReadback::fetch(std::span<const SequenceId> sequences, std::span<const DraftTree> trees,
                          std::span<const std::shared_ptr<CachedModel>> caches) {
  unread_.clear();
  for (std::size_t i = 0; i < trees.size(); ++i)
    for (const auto& c : caches)
      c->cache().take_unread(sequences[i], {trees[i].known.data<Token>(), std::size_t(trees[i].nodes)}, unread_);
  const std::int64_t n = std::int64_t(unread_.size());
  if (n == 0) return;
  addresses_.begin(n * 12 + 2 * Staging::kAlignment);
  const auto at = addresses_.array({n}, DType::u64), known = addresses_.array({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i)
    *at.host.row<const Token*>(i) = unread_[std::size_t(i)].drawn, *known.host.row<Token>(i) = DraftTree::kUnread;
  addresses_.push();
  const Tensor drawn = backend_.allocate({n}, DType::i32);
  backend_.pick(known.device, at.device, drawn, std::numeric_limits<int>::max());
  tokens_.begin(drawn.bytes() + Staging::kAlignment);
  read_ = tokens_.array({n}, DType::i32).host;
  backend_.fetch(drawn, read_);
}

void DraftReadback::store() {
  for (std::size_t i = 0; i < unread_.size(); ++i) *unread_[i].known = *read_.row<Token>(std::int64_t(i));
  unread_.clear();
}

}  // namespace foretoken

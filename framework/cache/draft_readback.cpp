#include "framework/cache/draft_readback.h"

namespace foretoken {

void DraftReadback::fetch(std::span<const SequenceId> sequences, std::span<const DraftTree> trees,
                          std::span<const std::shared_ptr<CachedModel>> caches) {
  unread_.clear();
  for (std::size_t i = 0; i < trees.size(); ++i)
    for (const auto& c : caches)
      c->cache().take_unread(sequences[i], {trees[i].known.data<Token>(), std::size_t(trees[i].nodes)}, unread_);
  std::vector<const Token*> drawn;
  for (const KvCache::Unread& u : unread_) drawn.push_back(u.drawn);
  if (!drawn.empty()) tokens_.fetch(drawn);
}

void DraftReadback::store() {
  for (std::size_t i = 0; i < unread_.size(); ++i) *unread_[i].known = tokens_[i];
  unread_.clear();
}

}  // namespace foretoken

#include "framework/decode/token_readback.h"

#include <limits>

#include "framework/decode/draft_tree.h"

namespace foretoken {

void TokenReadback::fetch(std::span<const Token* const> drawn) {
  const std::int64_t n = std::int64_t(drawn.size());
  addresses_.begin(n * 12 + 2 * Staging::kAlignment);
  const auto at = addresses_.array({n}, DType::u64), known = addresses_.array({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i)
    *at.host.row<const Token*>(i) = drawn[std::size_t(i)], *known.host.row<Token>(i) = DraftTree::kUnread;
  addresses_.push();
  const Tensor tokens = backend_.allocate({n}, DType::i32);
  backend_.pick(known.device, at.device, tokens, std::numeric_limits<int>::max());
  tokens_.begin(tokens.bytes() + Staging::kAlignment);
  read_ = tokens_.array({n}, DType::i32).host;
  backend_.fetch(tokens, read_);
}

}  // namespace foretoken

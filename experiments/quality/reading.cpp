#include "experiments/quality/reading.h"

#include <algorithm>

namespace foretoken {
namespace {

constexpr int kPageRows = 16;

}  // namespace

Reading::Reading(Backend& backend, std::shared_ptr<Model> model, int window)
    : backend_(backend),
      pool_(backend, model->info().kv.page_bytes(kPageRows), (window + kPageRows - 1) / kPageRows),
      cached_(backend, std::move(model), pool_, false) {}

void Reading::begin(std::span<const Token> tokens) {
  cached_.forget(sequence_);
  tokens_.assign(tokens.begin(), tokens.end());
}

Tensor Reading::logits(int at, int n) {
  // The token `at` is the root of a tree, and those behind it are a chain below: nodes have logits.
  const std::span<const Token> tokens(tokens_);
  sequence_.tokens.assign(tokens.begin(), tokens.begin() + at + 1);
  DraftTree tree = DraftTree::rooted(backend_, tokens[std::size_t(at)], n - 1);
  for (int i = 1; i < n; ++i) tree.guess(i - 1, tokens[std::size_t(at + i)]);
  const int chain = int(cached_.unseen(sequence_).size()) - 1;
  (void)cached_.reserve(sequence_, chain + n);  // the pool has pages for a whole window
  const Segment segment{&sequence_, chain, &tree, 0};
  const Tensor logits = cached_.run({&segment, 1}).logits;
  if (backend_.device() == Device{}) return logits;
  const Tensor host = Tensor::host(logits.shape(), DType::f32);
  backend_.copy(logits, host);
  return host;
}

int rows_at_once(int vocab) {
  constexpr std::int64_t kBytes = 64 << 20;
  return int(std::clamp<std::int64_t>(kBytes / (4 * std::int64_t(vocab)), 16, 512));
}

}  // namespace foretoken

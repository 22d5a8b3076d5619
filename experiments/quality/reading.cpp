#include "experiments/quality/reading.h"

#include <algorithm>

namespace foretoken {

constexpr int kPageRows = 16;

Reading::Reading(Backend& backend, std::shared_ptr<Model> model, int window, PageChoice chosen)
    : backend_(backend),
      pool_(backend, model->info().kv.page_bytes(kPageRows), (window + kPageRows - 1) / kPageRows),
      cached_(backend, model, pool_, false),
      token_(Tensor::host({1}, DType::i32)) {
  if (chosen) thinned_.emplace(backend, std::move(model), cached_.cache(), std::move(chosen));
}

void Reading::begin(std::span<const Token> tokens) {
  if (thinned_) thinned_->forget(sequence_);
  cached_.forget(sequence_);
  tokens_.assign(tokens.begin(), tokens.end());
  read_ = 0;
}

// The token `at` is the root of a tree, and those behind it are a chain below: nodes have logits.
Tensor Reading::logits_of(CachedModel& model, int at, int n) {
  DraftTree tree = DraftTree::rooted(backend_, tokens_[std::size_t(at)], n - 1);
  for (int i = 1; i < n; ++i) tree.guess(i - 1, tokens_[std::size_t(at + i)]);
  const int chain = int(model.unseen(sequence_).size()) - 1;
  (void)model.reserve(sequence_, chain + n);  // the pool has pages for a whole window
  const Segment segment{&sequence_, chain, &tree, 0};
  const Tensor logits = model.run({&segment, 1}).logits;
  if (backend_.device() == Device{}) return logits;
  const Tensor host = Tensor::host(logits.shape(), DType::f32);
  backend_.copy(logits, host);
  return host;
}

// Of a thinned cache: reads one more token. The view writes its row to the page that the cache has reserved for it, and
// the cache takes it as a row of its own.
Tensor Reading::next(int at) {
  sequence_.tokens.assign(tokens_.begin(), tokens_.begin() + at + 1);
  (void)cached_.unseen(sequence_);
  (void)cached_.reserve(sequence_, 1);
  const Tensor logits = logits_of(*thinned_, at, 1);
  token_.data<Token>()[0] = tokens_[std::size_t(at)];
  (void)cached_.cache().fed(sequence_.id).append(-1, {token_, {}}, 0);
  return logits;
}

Tensor Reading::logits(int at, int n) {
  if (thinned_) {
    const Tensor all = Tensor::host({n, info().vocab}, DType::f32);
    for (; read_ < at + n; ++read_) {
      const Tensor logits = next(read_);
      if (read_ >= at) std::ranges::copy(logits.values<float>(), all.row<float>(read_ - at));
    }
    return all;
  }
  sequence_.tokens.assign(tokens_.begin(), tokens_.begin() + at + 1);
  return logits_of(cached_, at, n);
}

}  // namespace foretoken

// The logits of a model along a window of tokens, some rows at a time, computed as the engine computes them: through a
// paged cache. Of a thinned cache the pages are chosen anew for each token, which is then read alone, as in decoding,
// and what it writes is computed from those pages: a target that never had more. This module must not know what the
// logits are for.
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "framework/cache/cached_model.h"
#include "framework/decode/sequence.h"

namespace foretoken {

class Reading {
 public:
  // `backend` must outlive it. `window`: the most tokens of a window. `chosen`: of a thinned cache; empty: it is whole.
  Reading(Backend& backend, std::shared_ptr<Model> model, int window, PageChoice chosen = {});

  const ModelInfo& info() const { return cached_.info(); }
  // The tokens of the next window.
  void begin(std::span<const Token> tokens);
  // On the host: f32 [n, vocab], the logits after each of the window's tokens [at, at + n), of which the last call
  // ended at `at` or before. Their memory is not reused while the Tensor lives.
  Tensor logits(int at, int n);

 private:
  Tensor next(int at);
  Tensor logits_of(CachedModel& model, int at, int n);

  Backend& backend_;
  PagePool pool_;
  CachedModel cached_;
  std::optional<CachedModel> thinned_;  // on pages of `cached_`
  Tensor token_;                        // i32 [1]: the last one that it read
  int read_ = 0;                        // tokens that it read
  std::vector<Token> tokens_;
  Sequence sequence_;
};

}  // namespace foretoken

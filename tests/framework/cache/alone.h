// A model with a cache and a pool of its own, without an engine.
#pragma once
#include <gtest/gtest.h>

#include "framework/cache/cached_model.h"

namespace foretoken::test {

struct Alone {
  Alone(Backend& b, const std::shared_ptr<Model>& m, int page_rows, int pages)
      : backend(b), pool(b, m->info().kv.page_bytes(page_rows), pages), model(b, m, pool, false) {}
  // The logits after `tokens`, f32 [1, vocab], by one forward of all of them. `id`: of a sequence that was not fed
  // before.
  Output after(SequenceId id, std::vector<Token> tokens) {
    Sequence s;
    s.id = id, s.tokens = std::move(tokens);
    (void)model.unseen(s);
    EXPECT_TRUE(model.reserve(s, s.length()));
    const DraftTree root = DraftTree::rooted(backend, s.last(), 0);
    const Segment all{&s, s.length() - 1, &root, 0};
    return model.run({&all, 1});
  }

  Backend& backend;
  PagePool pool;
  CachedModel model;
};

}  // namespace foretoken::test

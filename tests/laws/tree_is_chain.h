// tree = chain, a law of models and devices.
#pragma once
#include <cstring>

#include "experiments/conformance/scenario.h"

namespace foretoken::test {

using namespace conformance;

constexpr int kRowsOfAPage = 3;

// A model with a cache for one sequence.
struct TreeReader {
  TreeReader(Backend& backend, std::shared_ptr<Model> model, int pages)
      : pool(backend, model->info().kv.page_bytes(kRowsOfAPage), pages),
        cached(backend, std::move(model), pool, false) {}
  // Logits of the fed nodes of `tree` after all tokens of `sequence`, which are fed in chunks of `piece`; on the host.
  Tensor read(Backend& backend, const Sequence& sequence, const DraftTree& tree, int piece) {
    for (;;) {
      const int unseen = int(cached.unseen(sequence).size());
      const bool root = unseen <= piece;
      const Segment s{&sequence, root ? unseen - 1 : piece, root ? &tree : nullptr, 0};
      (void)cached.reserve(sequence, s.chain + (root ? tree.nodes : 0));
      const Output out = cached.run({&s, 1});
      if (!root) continue;
      const Tensor host = Tensor::host(out.logits.shape(), DType::f32);
      backend.copy(out.logits, host);
      return host;
    }
  }
  PagePool pool;
  CachedModel cached;
};

// The logits of every node of a random tree equal those of its path run alone, bit for bit. The tree is behind
// `context` tokens and up to 20 more.
inline Finding tree_is_chain(Backend& backend, std::shared_ptr<Model> model, int nodes, std::uint64_t seed,
                             int context = 0) {
  Finding f{.what = model->info().name + " on " + backend.name() + ", tree of " + std::to_string(nodes)};
  const Draws draws{seed, 0, 0, 0};
  const auto below = [&](int n, int i, int k) {
    return int(draws.uniform({Role::draft, std::uint32_t(i), std::uint32_t(k)}) * n);
  };
  const int vocab = model->info().vocab;
  Sequence sequence;
  sequence.id = 1;
  for (int i = 0; i <= context + below(20, 0, 0); ++i) sequence.tokens.push_back(below(vocab, i, 1));
  DraftTree tree = DraftTree::rooted(backend, sequence.last(), nodes);
  std::vector<Tokens> paths{{}};
  for (int n = 1; n <= nodes; ++n) {
    const int parent = below(3, n, 2) == 0 ? n - 1 : below(n, n, 3);
    paths.push_back(paths[std::size_t(parent)]);
    paths.back().push_back(below(vocab, n, 4));
    tree.guess(parent, paths.back().back());
  }
  const int pages = (sequence.length() + nodes) / kRowsOfAPage + 1;
  TreeReader whole(backend, model, pages);
  const Tensor logits = whole.read(backend, sequence, tree, 7);
  for (int n = 0; n <= nodes; ++n, ++f.cases) {
    Sequence alone = sequence;
    alone.tokens.insert(alone.tokens.end(), paths[std::size_t(n)].begin(), paths[std::size_t(n)].end());
    const Tensor chain =
        TreeReader(backend, model, pages).read(backend, alone, DraftTree::rooted(backend, alone.last(), 0), 1 << 20);
    if (std::memcmp(chain.row<float>(0), logits.row<float>(n), std::size_t(vocab) * sizeof(float)) != 0)
      f.fail("the logits after node " + std::to_string(n) + " differ from those of its path [" +
             text_of(paths[std::size_t(n)]) + "] run alone");
  }
  return f;
}

}  // namespace foretoken::test

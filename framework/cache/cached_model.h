// A model together with its cache: what the engine's target and every model drafter are. It turns segments (unseen tokens
// plus some nodes of a draft tree) into the rows of one forward.
#pragma once
#include <memory>
#include <span>

#include "framework/cache/kv_cache.h"
#include "framework/decode/draft_tree.h"
#include "framework/model/model.h"

namespace foretoken {

// What one sequence feeds in one forward: `chain` tokens that follow what the cache holds, then the nodes [begin, nodes) of
// `tree`. With a tree the chain must reach up to the root, which is the sequence's last token.
struct Segment {
  const Sequence* sequence = nullptr;
  int chain = 0;
  const DraftTree* tree = nullptr;
  int begin = 0;  // > 0: the nodes before were fed by an earlier forward of this round
};

class CachedModel {
 public:
  CachedModel(Backend& backend, std::shared_ptr<Model> model, PagePool& pool, bool reuse_prefixes = true);

  const ModelInfo& info() const { return model_->info(); }
  // Tokens of the sequence that the cache does not hold, at least one (the root). Judges what was pending.
  std::span<const Token> unseen(const Sequence& sequence);
  bool reserve(const Sequence& sequence, int rows) { return cache_.reserve(sequence, rows); }
  // One forward. Logits of the fed tree nodes, segment after segment: f32 [sum of (nodes - begin), vocab].
  Output run(std::span<const Segment> segments);
  void forget(const Sequence& sequence) {
    cache_.forget(sequence);
    root_row_.erase(sequence.id);
  }

  KvCache& cache() { return cache_; }
  const KvCache& cache() const { return cache_; }
  double seconds() const { return seconds_; }       // spent in forwards since the start
  std::uint64_t forwards() const { return forwards_; }
  std::uint64_t rows() const { return rows_; }

 private:
  Rows rows_of(std::span<const Segment> segments);
  Layout layout_of(std::span<const Segment> segments, std::span<const int> first_row, int rows);

  Backend& backend_;
  std::shared_ptr<Model> model_;
  KvCache cache_;
  std::unordered_map<SequenceId, int> root_row_;  // pending row number of node 0 of the tree in hand
  double seconds_ = 0;
  std::uint64_t forwards_ = 0, rows_ = 0;
};

}  // namespace foretoken

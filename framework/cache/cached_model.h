// A model together with its cache: what the engine's target and every model drafter are. It turns segments (unseen
// tokens plus some nodes of a draft tree) into the rows of one forward.
#pragma once
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "framework/cache/kv_cache.h"
#include "framework/decode/draft_tree.h"
#include "framework/model/model.h"
#include "kernels/staging.h"

namespace foretoken {

// What one sequence feeds in one forward: `chain` tokens that follow what the cache holds, then the nodes [begin,
// nodes) of `tree`. With a tree the chain must reach up to the root, which is the sequence's last token.
struct Segment {
  const Sequence* sequence = nullptr;
  int chain = 0;
  const DraftTree* tree = nullptr;
  int begin = 0;                               // > 0: the nodes before were fed by an earlier forward of this round
  std::span<const std::uint64_t> inputs = {};  // device addresses of the rows' features, one a row; empty: none
  bool mutual = false;                         // the rows see one another, not only their ancestors (block drafters)
};

class CachedModel {
 public:
  CachedModel(Backend& backend, std::shared_ptr<Model> model, PagePool& pool, bool reuse_prefixes = true);

  const ModelInfo& info() const { return model_->info(); }
  const std::shared_ptr<Model>& model() const { return model_; }
  // Tokens of the sequence that the cache does not hold, at least one (the root). Judges what was pending.
  std::span<const Token> unseen(const Sequence& sequence);
  // The same number, at most: without a look for the prefix of a sequence that the cache does not know.
  int lacks(const Sequence& sequence);
  bool reserve(const Sequence& sequence, int rows) { return cache_.reserve(sequence, rows); }
  // One forward. Logits of the fed tree nodes, segment after segment: f32 [sum of (nodes - begin), vocab]. They stay as
  // long as somebody holds them.
  Output run(std::span<const Segment> segments);
  void forget(const Sequence& sequence) { cache_.forget(sequence); }

  KvCache& cache() { return cache_; }
  const KvCache& cache() const { return cache_; }
  double seconds();  // spent in forwards since the start; after Backend::synchronize()
  std::uint64_t forwards() const { return forwards_; }
  std::uint64_t rows() const { return rows_; }

 private:
  // One row of the forward in hand.
  struct Fed {
    int segment, pending;  // number of its segment, and of its pending row
    KvCache::Place place;
    Token known;
    const Token* at;  // where the device finds a token that the host does not know
  };
  // How large the forward is, padded as the device wants it.
  struct Extent {
    int rows, tables, width, words, wanted, deepest, longest;
    bool all_wanted;
  };
  // What the device reads, beside the rows' layout.
  struct Inputs {
    Rows rows;
    Tensor known, at;  // i32, u64 [rows]: see Backend::pick
  };

  void feed(std::span<const Segment> segments);
  Extent extent(std::span<const Segment> segments) const;
  Inputs stage(std::span<const Segment> segments, const Extent& e);
  int padding_before(const Layout& l, int i) const;
  void fill_rows(Layout& host, const Tensor& known, const Tensor& at) const;
  void fill_tables(std::span<const Segment> segments, Layout& host) const;
  Output forward(Inputs inputs, const Extent& e);
  const Tensor& logits_memory(int rows);

  Backend& backend_;
  std::shared_ptr<Model> model_;
  KvCache cache_;
  int window_;  // positions that a row sees, itself among them; 0: all
  const PagePool& pool_;
  std::shared_ptr<ForwardMemory> memory_;     // of the model, as long as this lives
  std::vector<Fed> fed_;                      // rows of the forward in hand
  std::vector<const KvCache::Held*> held_;    // of its segments
  std::vector<std::int32_t> wanted_;          // and those whose logits are asked for
  std::vector<std::pair<Mark, Mark>> spans_;  // of forwards whose time is not counted yet
  double seconds_ = 0;
  std::uint64_t forwards_ = 0, rows_ = 0;
};

}  // namespace foretoken

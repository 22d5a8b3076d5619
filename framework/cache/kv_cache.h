// The keys and values of one model for all sequences, in pages of a shared pool. A cache knows which tokens it holds:
// confirmed ones (a prefix of the sequence) and pending ones (a tree that a forward wrote and nobody has judged). When
// it next meets its sequence it keeps the pending path whose tokens the sequence took and frees the rest; catching up
// and rolling back are one comparison of tokens, from a watermark. Nobody else ever implements rollback. This module
// must not know drafters, verifiers or whether its model is a target.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "framework/cache/page_pool.h"
#include "framework/cache/prefix_index.h"
#include "framework/decode/sequence.h"
#include "framework/model/model.h"

namespace foretoken {

class KvCache {
 public:
  KvCache(Backend& backend, PagePool& pool, const KvShape& shape, bool reuse_prefixes = true);
  ~KvCache();
  KvCache(const KvCache&) = delete;

  // Judges what is pending and, for a sequence that it does not know, looks for its prefix. Returns the number of
  // tokens held, at most length - 1: the last token of a sequence is always fed, since its logits are wanted.
  int settle(const Sequence& sequence);
  // Makes sure that `rows` more rows find room; false, and nothing taken, when the pool has none. After settle().
  bool reserve(const Sequence& sequence, int rows);

  // Of a pending row: where its key goes, its depth, and what it sees (see Layout).
  struct Place {
    std::int32_t slot, position, visible;
    int words() const { return (slot + 1 - visible + 63) / 64; }  // of ancestor bits
  };
  struct PendingRow {
    int parent, depth,
        trunk;           // trunk: how many leading pending rows, 0 .. trunk - 1, are ancestors or itself, without a gap
    const Token* token;  // in one of `sources`
    bool taken = false;  // the sequence took the whole path down to this row; siblings may repeat a token
  };
  // What is held of one sequence; it stays where it is until the sequence is forgotten.
  struct Held {
    std::vector<PageId> table;
    std::vector<PendingRow> pending;
    std::vector<Tensor> sources;  // host memory where pending rows' tokens are found
    int confirmed = 0;
    int indexed = 0;                             // full pages that are in the index (or whose content already was)
    std::uint64_t serial = PrefixIndex::kStart;  // content serial of page indexed - 1
    int reused = 0;                              // rows of a found prefix that are not counted yet

    // Adds a pending row below pending row `parent` (-1: below the last confirmed token, or chained after the confirmed
    // prefix) and returns its number. Its token is read from `tokens`[at], host memory, when the sequence is next met.
    int append(int parent, const Tensor& tokens, int at);
    // Takes back all pending rows: what stands in their slots is nobody's.
    void retract() { pending.clear(), sources.clear(); }
    Place place(int row) const;
    // Sets the ancestor bits of a pending row, but for ancestors at positions before `first`; `words` has
    // Place::words() or more.
    void ancestors(int row, int first, std::span<std::uint64_t> words) const;
  };
  const Held& held(SequenceId id) const { return held_.at(id); }
  Held& fed(SequenceId id);  // to append rows to, or to take them back

  std::span<const KvLayer> layers() const { return layers_; }
  int page_rows() const { return page_rows_; }
  int confirmed(SequenceId id) const;  // 0 for a sequence that it does not know
  int pages_for(int rows) const { return (rows + page_rows_ - 1) / page_rows_; }
  // Settles and gives back the sequence's pages; full ones stay findable by content.
  void forget(const Sequence& sequence);

  // Integrity: every page of every table has a reference, no page is in two tables unless shared by prefix, table sizes
  // fit, pending parents precede. Throws Error with what is wrong. Cheap enough for every step of a debug build.
  void check() const;
  // Rows that no forward had to compute, counted when the sequence is first fed.
  std::uint64_t prefix_rows_reused() const { return prefix_rows_reused_; }
  std::size_t sequences() const { return held_.size(); }

 private:
  void find_prefix(const Sequence& sequence, Held& held);
  void keep_path(const Sequence& sequence, Held& held, int limit);
  void index_full_pages(const Sequence& sequence, Held& held);
  void release(Held& held, int pages);

  Backend& backend_;
  PagePool& pool_;
  bool reuse_prefixes_;
  int page_rows_;
  std::vector<KvLayer> layers_;
  PrefixIndex index_;
  std::unordered_map<SequenceId, Held> held_;
  std::uint64_t prefix_rows_reused_ = 0;
};

}  // namespace foretoken

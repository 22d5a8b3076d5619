// The keys and values of one model for all sequences, in pages of a shared pool (paged attention: Kwon et al. 2023,
// arXiv 2309.06180). A cache knows which tokens its rows hold: confirmed ones, a prefix of the sequence, and pending
// ones, a tree that a forward wrote and that is not yet verified. At the next settle() it keeps the pending path whose
// tokens the sequence now has and frees the rest. So rollback, and catching up after it, are one comparison of tokens
// behind the confirmed prefix, and no other module implements them. Rows of tokens that may be taken back
// (Sequence::verified) stay pending, as a chain behind that prefix. This module must not know drafters, verifiers or
// whether its model is a target.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "framework/cache/page_pool.h"
#include "framework/cache/prefix_index.h"
#include "framework/decode/sequence.h"
#include "framework/model/model.h"

namespace foretoken {

// The rows of a page that has room for so many: from 16 on a multiple of 8, of which kernels copy boxes. Caches of
// other shapes than the pool's pages were made for would else have 33 or 62 rows in a page, and attention no fast
// route.
constexpr int page_rows_of(int room) { return room < 16 ? room : room / 8 * 8; }

// Which pages a view reads of a sequence that has `confirmed` rows in pages of `page_rows`: their numbers in the
// sequence's block table, ascending, of those before confirmed / page_rows. Rows behind these are always read.
struct PageChoice {
  using Choose = std::function<std::vector<int>(const Sequence& sequence, int confirmed, int page_rows)>;
  Choose choose;
  // Only the number of the chosen pages counts: each layer and kv head selects as many in every forward
  // (Backend::select_pages), of all those before confirmed / page_rows.
  bool selects = false;

  PageChoice() = default;
  template <class F>
    requires std::is_invocable_v<F, const Sequence&, int, int>
  PageChoice(F f, bool selects = false) : choose(std::move(f)), selects(selects) {}  // implicit, as of a function
  explicit operator bool() const { return bool(choose); }
};

class KvCache {
 public:
  // `skip`: rows are those of a sequence's tokens without so many at its beginning: 1 for a draft head, which reads
  // each token with the target's state of the one before.
  KvCache(PagePool& pool, const KvShape& shape, bool reuse_prefixes = true, int skip = 0);
  // A view of another cache, which must outlive it: it reads that one's confirmed rows, and has rows of its own behind
  // them, in the pages that the other one has reserved and in further ones. Its rows are never kept, and what they
  // overwrite are rows that no forward of the other cache has written yet.
  // `chosen`: of a view of fewer pages; empty: of all. What is chosen anew counts from the next settle() on.
  explicit KvCache(KvCache& viewed, PageChoice chosen = {});
  ~KvCache();
  KvCache(const KvCache&) = delete;

  // Resolves the pending rows and, for a sequence that the cache does not know, looks up its prefix. Returns the number
  // of confirmed tokens, at most length - skip - 1: the last token of a sequence is always fed, since its logits are
  // needed. Of a view: those of the cache that it views, which must have settled in this step. Of a sequence that
  // speculates (Sequence::verified) the rows of its path too, which are kept pending; its pages stay reserved.
  int settle(const Sequence& sequence);
  // Of a view of all pages, in the place of settle(): reads only the pages whose rows are all before row `rows`, so
  // that the tokens behind them are fed again, to pages of its own. Returns the number of rows that it reads.
  int settle_before(const Sequence& sequence, int rows);
  // Moves the rows that settle() kept, of all caches of the pool, by one call of Backend::move. To be called before
  // pages are read or written: CachedModel::run does.
  void compact() { pool_.moves().run(); }
  // Takes pages for `rows` more rows; false, and none taken, where the pool has too few. After settle(), which gives
  // back the pages of rows that were not fed: an Error for a sequence that was not settled. A view settles by itself
  // where the other cache has settled since.
  bool reserve(const Sequence& sequence, int rows);
  // Throws Error unless pages are reserved for `rows` more rows of the sequence, in a view since the other cache
  // settled. `model`: for the message.
  void expect_reserved(SequenceId id, int rows, const std::string& model) const;

  // Of a pending row: the slot of its key, its position, and the slot before which it attends to every slot (Layout).
  // Keys are rotated at their positions, also where a view of fewer pages has them at earlier slots.
  struct RowLayout {
    std::int32_t slot, position, visible;
    int words() const { return (slot + 1 - visible + 63) / 64; }  // of ancestor bits
  };
  struct PendingRow {
    int parent, depth, trunk;      // trunk: pending rows 0 .. trunk - 1 are all ancestors of this row, or itself
    Token* token;                  // in one of `sources`, as is `drawn`
    const Token* drawn = nullptr;  // device address of a token that the host did not know; null: the host knew it
    bool taken = false;            // the sequence has the whole path down to this row; siblings may repeat a token
    bool approximate = false;      // never kept: computed from guesses of what the target's states will be
  };
  // Memory of pending rows' tokens: on the host, and on the device where it drew tokens that the host has not read.
  struct Source {
    Tensor known, drawn;
  };
  // The rows of one sequence. Its address does not change until the sequence is forgotten.
  struct Held {
    std::vector<PageId> table;
    int lent = 0;               // of a view: its first pages, which are the other cache's
    std::vector<int> chosen;    // of a view of fewer pages: the numbers of the first ones in the other cache's table
    int bounded = 0;            // of a view that selects: so many of the candidates have their bounds
    int left_out = 0;           // the other rows before the last confirmed ones: a slot is a position less these
    std::uint64_t settled = 0;  // which settle() it is of, of the other cache in a view; 0: none
    // Which settle() began the rows that are confirmed now, or took some of them back; of a view, as of the other
    // cache.
    std::uint64_t begun = 0;
    std::vector<PendingRow> pending;
    int path = 0;                 // the first pending rows, a chain: of a speculative path, kept by settle()
    std::vector<Source> sources;  // of pending rows' tokens
    int confirmed = 0;
    int indexed = 0;                             // full pages that are in the index (or whose content already was)
    std::uint64_t serial = PrefixIndex::kStart;  // content serial of page indexed - 1
    int reused = 0;                              // rows of a found prefix that prefix_rows_reused() does not contain

    // Adds a pending row below pending row `parent` (-1: directly after the confirmed prefix) and returns its index.
    // Its token is read from tokens.known[at] at the next settle(); a token that the device drew must have been stored
    // there by then: see KvCache::take_unread.
    int append(int parent, const Source& tokens, int at);
    // Discards all pending rows; their slots may be overwritten.
    void retract() { pending.clear(), sources.clear(), path = 0; }
    // Confirms the first `more` rows of a path that lies behind the confirmed prefix, and keeps the others pending.
    void keep(std::vector<PendingRow> rows, int more);
    RowLayout row_layout(int row) const;
    int rows() const { return confirmed - left_out + int(pending.size()); }  // in `table`
    int seen() const { return confirmed + path; }                            // rows that are not to be fed again
    // The slot of the first row that the table has from this position on.
    int slot_from(int position, int page_rows) const;
    // Sets the ancestor bits of a pending row, except those of ancestors at positions before `first`. `words` has at
    // least RowLayout::words() elements, zeros before.
    void ancestors(int row, int first, std::span<std::uint64_t> words) const;
  };
  const Held& held(SequenceId id) const { return held_.at(id); }
  bool knows(SequenceId id) const { return held_.contains(id); }
  // Of a view that selects: the pages of which each layer and kv head selects Held::chosen.size() in this forward.
  std::span<const PageId> candidates(SequenceId id) const;
  // Those of them that have no bounds yet (Backend::bound_pages), once rows were moved (compact). note_bounded(): now
  // they have.
  std::span<const PageId> unbounded(SequenceId id) const;
  void note_bounded(SequenceId id) { held_.at(id).bounded = int(candidates(id).size()); }
  bool selects() const { return chosen_.selects; }
  Held& fed(SequenceId id);  // to append rows to, or to discard them; counts a reused prefix

  // A token that the device drew and that the host has not read: its device address, and the host address to which the
  // caller of take_unread() must copy it.
  struct Unread {
    const Token* drawn;
    Token* known;
  };
  // Appends the unread tokens of a sequence's pending rows to `all`, each once. Those whose host address lies in
  // `elsewhere` are left out: the caller reads that memory by itself.
  void take_unread(SequenceId id, std::span<const Token> elsewhere, std::vector<Unread>& all);

  std::span<const KvLayer> layers() const { return *layers_; }
  int page_rows() const { return page_rows_; }
  int skip() const { return skip_; }
  PagePool& pool() const { return pool_; }
  bool keeps() const { return viewed_ == nullptr; }  // it confirms rows of its own
  int confirmed(SequenceId id) const;                // rows; 0 for a sequence that the cache does not know
  int pages_for(int rows) const { return pages_of(rows, page_rows_); }
  // Positions that a page of so many bytes holds, and the pages of so many positions, as a cache has them.
  static int rows_in(std::int64_t page_bytes, const KvShape& shape) {
    return page_rows_of(int((page_bytes - shape.bound_bytes()) / shape.bytes_per_row()));
  }
  static int pages_of(int rows, int page_rows) { return (rows + page_rows - 1) / page_rows; }
  // Settles, then returns the sequence's pages to the pool; full pages remain in the prefix index until evicted.
  void forget(const Sequence& sequence);

  // Throws Error unless every page of every table has its references, no page is in two tables unless shared by prefix,
  // tables have pages for all rows, and pending parents precede. Cheap enough for every step of a debug build.
  void check() const;
  // Rows of prefixes that no forward had to compute, counted when the sequence is first fed.
  std::uint64_t prefix_rows_reused() const { return prefix_rows_reused_; }
  std::size_t sequences() const { return held_.size(); }

 private:
  std::span<const Token> page_content(const Sequence& sequence, const Held& held) const;
  int tokens_of(const Sequence& sequence) const { return std::max(0, sequence.length() - skip_); }
  int look_again(const Sequence& sequence, Held& held);
  void borrow(const Sequence& sequence, const Held& other, Held& held) const;
  bool outdated(SequenceId id, const Held& held) const;
  void find_prefix(const Sequence& sequence, Held& held);
  void keep_path(const Sequence& sequence, Held& held, int limit);
  void index_full_pages(const Sequence& sequence, Held& held);
  void release(Held& held, int pages);

  PagePool& pool_;
  KvCache* viewed_ = nullptr;
  PageChoice chosen_;
  bool reuse_prefixes_;
  int skip_;
  int page_rows_;
  std::shared_ptr<const std::vector<KvLayer>> layers_;  // pending moves share them
  PrefixIndex index_;
  std::unordered_map<SequenceId, Held> held_;
  std::uint64_t prefix_rows_reused_ = 0, settles_ = 0;
};

}  // namespace foretoken

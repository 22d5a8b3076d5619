// One pool of pages of a fixed number of bytes for the caches of all models, so that each cache gets the memory that it
// needs. A page is in use (reference-counted), idle (its content may be reused as a prefix) or free. Idle pages of all
// caches are in one list, least recently used first. This module must not know sequences or what a page holds.
#pragma once
#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "framework/cache/pending_moves.h"

namespace foretoken {

using PageId = std::int32_t;

class PagePool {
 public:
  // Called when an idle page is evicted.
  using Evicted = std::function<void(PageId)>;

  PagePool(Backend& backend, std::int64_t page_bytes, int pages);

  const Tensor& memory() const { return memory_; }  // u8 [pages + 1, page_bytes]
  PageId trash() const { return pages(); }          // an extra page after the others, to which padding rows write
  std::int64_t page_bytes() const { return page_bytes_; }
  int pages() const { return int(state_.size()); }
  int in_use() const { return in_use_; }
  int available() const { return pages() - in_use_; }  // free and idle

  std::optional<PageId> take();  // a page with one reference; evicts an idle page if none is free; nullopt: all in use
  void share(PageId page);       // one more reference, also of an idle page
  void drop(PageId page);        // one reference less; after the last the page is idle if it is kept, else free
  void keep(PageId page, Evicted evicted);  // from now on the page becomes idle, not free, after its last reference
  void discard(PageId page);                // reverts keep(); an idle page becomes free
  bool kept(PageId page) const { return bool(state_[std::size_t(page)].evicted); }
  int references(PageId page) const { return state_[std::size_t(page)].references; }

  // Of rows in these pages. They are run before a forward writes to any page, since pages change hands.
  PendingMoves& moves() { return moves_; }

 private:
  struct State {
    int references = 0;
    Evicted evicted;
    std::list<PageId>::iterator idle;
  };
  Tensor memory_;
  std::int64_t page_bytes_;
  std::vector<State> state_;
  std::vector<PageId> free_;
  std::list<PageId> idle_;  // least recently used first
  int in_use_ = 0;
  PendingMoves moves_;
};

}  // namespace foretoken

#include "framework/cache/page_pool.h"

#include <utility>

#include "kernels/error.h"

namespace foretoken {

PagePool::PagePool(Backend& backend, std::int64_t page_bytes, int pages)
    : page_bytes_(page_bytes), state_(std::size_t(pages)), moves_(backend) {
  if (pages < 1)
    throw Error(
        "the page pool is empty: give the engine more memory (\"memory_mib\", or \"memory_fraction\" where that is "
        "set) than one page of " +
        std::to_string(page_bytes) + " bytes");
  memory_ = backend.allocate({pages + 1, page_bytes}, DType::u8);
  for (PageId p = pages - 1; p >= 0; --p) free_.push_back(p);
}

std::optional<PageId> PagePool::take() {
  PageId page;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (!idle_.empty()) {
    page = idle_.front();
    idle_.pop_front();
    State& s = state_[std::size_t(page)];
    const Evicted evicted = std::exchange(s.evicted, nullptr);
    evicted(page);
  } else {
    return std::nullopt;
  }
  state_[std::size_t(page)].references = 1;
  ++in_use_;
  return page;
}

void PagePool::share(PageId page) {
  State& s = state_[std::size_t(page)];
  if (s.references++ == 0) {
    idle_.erase(s.idle);
    ++in_use_;
  }
}

void PagePool::drop(PageId page) {
  State& s = state_[std::size_t(page)];
  assert(s.references > 0);
  if (--s.references > 0) return;
  --in_use_;
  if (s.evicted)
    s.idle = idle_.insert(idle_.end(), page);
  else
    free_.push_back(page);
}

void PagePool::discard(PageId page) {
  State& s = state_[std::size_t(page)];
  if (!std::exchange(s.evicted, nullptr) || s.references > 0) return;
  idle_.erase(s.idle);
  free_.push_back(page);
}

void PagePool::keep(PageId page, Evicted evicted) {
  assert(state_[std::size_t(page)].references > 0);
  state_[std::size_t(page)].evicted = std::move(evicted);
}

}  // namespace foretoken

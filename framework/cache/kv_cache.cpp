#include "framework/cache/kv_cache.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "kernels/error.h"

namespace foretoken {

KvCache::KvCache(PagePool& pool, const KvShape& shape, bool reuse_prefixes, int skip)
    : pool_(pool), reuse_prefixes_(reuse_prefixes), skip_(skip) {
  page_rows_ = rows_in(pool.page_bytes(), shape);
  if (page_rows_ < 1)
    throw Error("a page of " + std::to_string(pool.page_bytes()) + " bytes holds no position of a model that needs " +
                std::to_string(shape.bytes_per_row()) + " bytes for one; raise \"page_rows\" of the engine");
  layers_ = std::make_shared<const std::vector<KvLayer>>(shape.in_pages(pool.memory(), page_rows_));
}

KvCache::KvCache(KvCache& viewed, PageChoice chosen)
    : pool_(viewed.pool_),
      viewed_(&viewed),
      chosen_(std::move(chosen)),
      reuse_prefixes_(false),
      skip_(viewed.skip_),
      page_rows_(viewed.page_rows_),
      layers_(viewed.layers_) {}

KvCache::~KvCache() {
  for (auto& [id, held] : held_) release(held, held.lent);
  for (const PageId page : index_.pages()) pool_.discard(page);
}

int KvCache::settle(const Sequence& sequence) {
  const auto [it, fresh] = held_.try_emplace(sequence.id);
  Held& held = it->second;
  if (viewed_ && (fresh || !sequence.speculates() || outdated(sequence.id, held))) return look_again(sequence, held);
  if (fresh) find_prefix(sequence, held);
  const int before = held.confirmed;
  keep_path(sequence, held, std::max(0, tokens_of(sequence) - 1));
  if (viewed_) return held.seen();
  index_full_pages(sequence, held);
  held.settled = ++settles_;
  if (fresh || held.confirmed < before) held.begun = settles_;
  return held.seen();
}

// Whatever a view knew of the other cache's pages is over: they may have changed hands since.
int KvCache::look_again(const Sequence& sequence, Held& held) {
  held.retract();
  release(held, held.lent);
  const auto other = viewed_->held_.find(sequence.id);
  if (other == viewed_->held_.end()) {
    held = {};
  } else {
    borrow(sequence, other->second, held);
  }
  return held.confirmed;
}

int KvCache::settle_before(const Sequence& sequence, int rows) {
  if (keeps() || chosen_)
    throw Error("tokens of sequence " + std::to_string(sequence.id) +
                " are to be read again in a cache that is no view of all pages of another; use such a view");
  Held& held = held_[sequence.id];
  const int pages = std::min(look_again(sequence, held), rows) / page_rows_;
  held.table.resize(std::size_t(pages)), held.lent = pages, held.confirmed = pages * page_rows_;
  return held.confirmed;
}

void KvCache::borrow(const Sequence& sequence, const Held& other, Held& held) const {
  held.confirmed = other.confirmed, held.settled = other.settled, held.left_out = 0;
  held.chosen.clear(), held.table.clear();
  auto rest = other.table.begin();
  if (chosen_) {
    const int full = other.confirmed / page_rows_;
    held.chosen = chosen_.choose(sequence, other.confirmed, page_rows_);
    if (std::exchange(held.begun, other.begun) != other.begun) held.bounded = 0;
    int before = -1;
    for (const int page : held.chosen) {
      if (page <= before || page >= full)
        throw Error("a view of fewer pages chose page " + std::to_string(page) +
                    ", which is none of the full pages in ascending order");
      held.table.push_back(other.table.at(std::size_t(page)));
      before = page;
    }
    held.left_out = (full - int(held.chosen.size())) * page_rows_;
    rest += full;
  }
  held.table.insert(held.table.end(), rest, other.table.end());
  held.lent = int(held.table.size());
}

bool KvCache::outdated(SequenceId id, const Held& held) const {
  if (!viewed_) return false;
  const auto other = viewed_->held_.find(id);
  return held.settled != (other == viewed_->held_.end() ? 0 : other->second.settled);
}

// The tokens of the first page that is not indexed, and before those of the first page the ones without a row: what a
// row holds depends on all tokens before it.
std::span<const Token> KvCache::page_content(const Sequence& sequence, const Held& held) const {
  const int begin = held.indexed == 0 ? 0 : skip_ + held.indexed * page_rows_,
            end = skip_ + (held.indexed + 1) * page_rows_;
  return std::span<const Token>(sequence.tokens).subspan(std::size_t(begin), std::size_t(end - begin));
}

void KvCache::find_prefix(const Sequence& sequence, Held& held) {
  if (!reuse_prefixes_) return;
  while ((held.indexed + 1) * page_rows_ <= tokens_of(sequence) - 1) {
    const auto hit = index_.find(held.serial, page_content(sequence, held));
    if (!hit) break;
    pool_.share(hit->page);
    held.table.push_back(hit->page);
    held.serial = hit->serial;
    ++held.indexed;
  }
  held.confirmed = held.indexed * page_rows_;
  held.reused = held.confirmed;
}

void KvCache::keep_path(const Sequence& sequence, Held& held, int limit) {
  const auto at_row = [&](int row) {
    const int slot = held.confirmed - held.left_out + row;
    return PageRow{held.table[std::size_t(slot / page_rows_)], slot % page_rows_};
  };
  int kept = held.confirmed;
  std::vector<PendingRow> path;
  for (int row = 0; row < int(held.pending.size()); ++row) {
    PendingRow& r = held.pending[std::size_t(row)];
    const int at = held.confirmed + r.depth;
    if (at >= limit || r.approximate || (r.parent >= 0 && !held.pending[std::size_t(r.parent)].taken) ||
        *r.token != sequence.tokens[std::size_t(at + skip_)])
      continue;
    r.taken = true;
    if (at != kept) continue;
    if (row != r.depth) pool_.moves().add({at_row(row), at_row(r.depth)});
    ++kept;
    if (sequence.speculates()) path.push_back(r);
  }
  pool_.moves().end(layers_);
  if (sequence.speculates())
    return held.keep(std::move(path),
                     keeps() ? std::max(0, std::min(kept, sequence.verified - skip_ - 1) - held.confirmed) : 0);
  // A stop rule may have cut the sequence below what was confirmed.
  held.confirmed = std::min(kept, limit);
  held.retract();
  release(held, pages_for(held.confirmed));
}

void KvCache::index_full_pages(const Sequence& sequence, Held& held) {
  if (!reuse_prefixes_) return;
  while ((held.indexed + 1) * page_rows_ <= held.confirmed) {
    const auto content = page_content(sequence, held);
    const PageId page = held.table[std::size_t(held.indexed)];
    if (const auto same = index_.find(held.serial, content)) {
      held.serial = same->serial;  // another page with this content is in the index; this one is freed at the end
    } else {
      held.serial = index_.insert(held.serial, content, page);
      pool_.keep(page, [this](PageId p) { index_.erase(p); });
    }
    ++held.indexed;
  }
}

void KvCache::release(Held& held, int pages) {
  while (int(held.table.size()) > pages) {
    pool_.drop(held.table.back());
    held.table.pop_back();
  }
}

void KvCache::expect_reserved(SequenceId id, int rows, const std::string& model) const {
  const auto it = held_.find(id);
  if (it != held_.end() && outdated(id, it->second))
    throw Error("the model " + model + " is run for sequence " + std::to_string(id) +
                " with pages of an earlier round, which may be another sequence's by now, since it views the cache of "
                "another model; call CachedModel::unseen, then reserve, then run in every round");
  const int all = it == held_.end() ? rows : it->second.rows() + rows,
            room = it == held_.end() ? 0 : int(it->second.table.size()) * page_rows_;
  if (all > room)
    throw Error("sequence " + std::to_string(id) + " would have " + std::to_string(all) +
                " rows in the cache of the model " + model + ", which has pages for " + std::to_string(room) +
                "; call CachedModel::unseen, then reserve, then run, since unseen gives back what was reserved before");
}

bool KvCache::reserve(const Sequence& sequence, int rows) {
  if (!knows(sequence.id))
    throw Error("pages of a cache are reserved for sequence " + std::to_string(sequence.id) +
                ", which it does not know; call CachedModel::unseen first, then reserve");
  Held& held = held_.at(sequence.id);
  if (outdated(sequence.id, held)) look_again(sequence, held);
  const int before = int(held.table.size()), wanted = pages_for(held.rows() + rows);
  while (int(held.table.size()) < wanted) {
    const auto page = pool_.take();
    if (!page) {
      release(held, before);
      return false;
    }
    held.table.push_back(*page);
  }
  return true;
}

std::span<const PageId> KvCache::candidates(SequenceId id) const {
  if (!selects()) return {};
  const Held& held = held_.at(id);
  const auto other = viewed_->held_.find(id);
  if (other == viewed_->held_.end()) return {};
  return std::span(other->second.table).first(held.chosen.size() + std::size_t(held.left_out / page_rows_));
}

std::span<const PageId> KvCache::unbounded(SequenceId id) const {
  const std::span<const PageId> all = candidates(id);
  return all.empty() ? all : all.subspan(std::size_t(held_.at(id).bounded));
}

KvCache::Held& KvCache::fed(SequenceId id) {
  Held& held = held_.at(id);
  prefix_rows_reused_ += std::uint64_t(std::exchange(held.reused, 0));
  return held;
}

int KvCache::Held::append(int parent, const Source& tokens, int at) {
  const int row = int(pending.size());
  assert(parent < row);
  const PendingRow above = parent < 0 ? PendingRow{-1, -1, 0, nullptr, nullptr} : pending[std::size_t(parent)];
  const int trunk = parent == row - 1 && above.trunk == row ? row + 1 : above.trunk;
  if (sources.empty() || sources.back().known.raw() != tokens.known.raw()) sources.push_back(tokens);
  if (tokens.drawn && !sources.back().drawn) sources.back().drawn = tokens.drawn;
  pending.push_back({parent, above.depth + 1, trunk, tokens.known.row<Token>(at),
                     tokens.drawn ? tokens.drawn.row<Token>(at) : nullptr});
  return row;
}

void KvCache::Held::keep(std::vector<PendingRow> rows, int more) {
  confirmed += more, path = int(rows.size()) - more;
  pending.assign(rows.begin() + more, rows.end());
  for (int i = 0; i < path; ++i) {
    PendingRow& r = pending[std::size_t(i)];
    r.parent = i - 1, r.depth = i, r.trunk = i + 1, r.taken = false;
  }
  if (path == 0) sources.clear();
}

KvCache::RowLayout KvCache::Held::row_layout(int row) const {
  const PendingRow& r = pending[std::size_t(row)];
  const int slots = confirmed - left_out;
  return {slots + row, confirmed + r.depth, slots + r.trunk};
}

int KvCache::Held::slot_from(int position, int page_rows) const {
  const int page = position / page_rows, all = int(chosen.size()) + left_out / page_rows;
  if (page >= all || left_out == 0) return position - left_out;
  const auto at = std::ranges::lower_bound(chosen, page);
  const int slot = int(at - chosen.begin()) * page_rows;
  return at != chosen.end() && *at == page ? slot + position % page_rows : slot;
}

void KvCache::Held::ancestors(int row, int first, std::span<std::uint64_t> words) const {
  const int trunk = pending[std::size_t(row)].trunk;
  for (int at = row; at >= trunk && confirmed + pending[std::size_t(at)].depth >= first;
       at = pending[std::size_t(at)].parent)
    words[std::size_t((at - trunk) / 64)] |= std::uint64_t(1) << ((at - trunk) % 64);
}

void KvCache::take_unread(SequenceId id, std::span<const Token> elsewhere, std::vector<Unread>& all) {
  const auto it = held_.find(id);
  if (it == held_.end()) return;
  const std::less<const Token*> before;  // of addresses in any memory
  const Token *const begin = elsewhere.data(), *const end = begin + elsewhere.size();
  for (PendingRow& r : it->second.pending) {
    const Token* const drawn = std::exchange(r.drawn, nullptr);
    if (drawn && (before(r.token, begin) || !before(r.token, end))) all.push_back({drawn, r.token});
  }
}

int KvCache::confirmed(SequenceId id) const {
  const auto it = held_.find(id);
  return it == held_.end() ? 0 : it->second.confirmed;
}

void KvCache::forget(const Sequence& sequence) {
  const auto it = held_.find(sequence.id);
  if (it == held_.end()) return;
  if (keeps()) {
    keep_path(sequence, it->second, tokens_of(sequence));
    index_full_pages(sequence, it->second);
  }
  release(it->second, it->second.lent);
  held_.erase(it);
}

void KvCache::check() const {
  std::map<PageId, int> uses;
  for (const auto& [id, h] : held_) {
    const int rows = h.rows();
    if (int(h.table.size()) < pages_for(rows))
      throw Error("cache check: sequence " + std::to_string(id) + " holds " + std::to_string(rows) + " rows in " +
                  std::to_string(h.table.size()) + " pages");
    for (std::size_t i = std::size_t(h.lent); i < h.table.size(); ++i) ++uses[h.table[i]];
    for (std::size_t i = 0; i < h.pending.size(); ++i)
      if (h.pending[i].parent >= int(i))
        throw Error("cache check: a pending row of sequence " + std::to_string(id) + " precedes its parent");
  }
  for (const auto& [page, n] : uses) {
    if (pool_.references(page) != n)
      throw Error("cache check: page " + std::to_string(page) + " is in " + std::to_string(n) + " tables but has " +
                  std::to_string(pool_.references(page)) + " references");
    if (n > 1 && !pool_.kept(page))
      throw Error("cache check: page " + std::to_string(page) + " is shared but was never indexed");
  }
}

}  // namespace foretoken

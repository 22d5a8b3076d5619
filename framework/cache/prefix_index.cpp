#include "framework/cache/prefix_index.h"

#include <algorithm>

#include <xxhash.h>

namespace foretoken {

std::uint64_t PrefixIndex::hash(std::uint64_t before, std::span<const Token> tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), before);
}

std::optional<PrefixIndex::Hit> PrefixIndex::find(std::uint64_t before, std::span<const Token> tokens) const {
  const auto [first, last] = entries_.equal_range(hash(before, tokens));
  for (auto it = first; it != last; ++it)
    if (it->second.before == before && std::ranges::equal(it->second.tokens, tokens))
      return Hit{it->second.page, it->second.serial};
  return std::nullopt;
}

std::uint64_t PrefixIndex::insert(std::uint64_t before, std::span<const Token> tokens, PageId page) {
  const std::uint64_t h = hash(before, tokens), serial = next_serial_++;
  entries_.emplace(h, Entry{before, serial, {tokens.begin(), tokens.end()}, page});
  hash_of_[page] = h;
  return serial;
}

std::vector<PageId> PrefixIndex::pages() const {
  std::vector<PageId> all;
  for (const auto& [page, h] : hash_of_) all.push_back(page);
  return all;
}

void PrefixIndex::erase(PageId page) {
  const auto known = hash_of_.find(page);
  if (known == hash_of_.end()) return;
  const auto [first, last] = entries_.equal_range(known->second);
  for (auto it = first; it != last; ++it)
    if (it->second.page == page) {
      entries_.erase(it);
      break;
    }
  hash_of_.erase(known);
}

}  // namespace foretoken

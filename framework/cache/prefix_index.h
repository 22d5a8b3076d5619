// Finds full pages of one cache by content: by their committed tokens and the page before them. This is how prefixes
// are reused. A hit is compared token by token, so a hash collision never returns the keys of another sequence.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "framework/cache/page_pool.h"

namespace foretoken {

class PrefixIndex {
 public:
  static constexpr std::uint64_t kStart = 0;  // the serial number "before" a first page

  struct Hit {
    PageId page;
    std::uint64_t serial;  // of the page's content, to look up what follows it
  };
  // The page that holds `tokens` after the content `before`, if there is one.
  std::optional<Hit> find(std::uint64_t before, std::span<const Token> tokens) const;
  // Records it and returns its serial number; an equal content must not be present.
  std::uint64_t insert(std::uint64_t before, std::span<const Token> tokens, PageId page);
  void erase(PageId page);
  std::vector<PageId> pages() const;
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t before, serial;
    std::vector<Token> tokens;
    PageId page;
  };
  static std::uint64_t hash(std::uint64_t before, std::span<const Token> tokens);

  std::unordered_multimap<std::uint64_t, Entry> entries_;
  std::unordered_map<PageId, std::uint64_t> hash_of_;
  std::uint64_t next_serial_ = kStart + 1;
};

}  // namespace foretoken

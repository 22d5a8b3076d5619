#include "framework/text/added_tokens.h"

#include <algorithm>

#include <utf8proc.h>

#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

bool is_space(char32_t c) {
  if ((c >= 0x09 && c <= 0x0d) || c == 0x85) return true;
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

// \w of Rust's regex: Alphabetic, M, Nd, Pc, Join_Control.
bool is_word(char32_t c) {
  if (c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
      (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189))
    return true;
  switch (utf8proc_category(utf8proc_int32_t(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

// Start of the character that ends at `end` > 0.
std::size_t character_before(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);
  return end;
}

bool word_ends_at(std::string_view text, std::size_t at) {
  return at > 0 && is_word(step_utf8(text, character_before(text, at)).point);
}
bool word_begins_at(std::string_view text, std::size_t at) {
  return at < text.size() && is_word(step_utf8(text, at).point);
}

std::size_t before_spaces(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least && is_space(step_utf8(text, character_before(text, at)).point)) at = character_before(text, at);
  return at;
}

std::size_t after_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(step_utf8(text, at).point)) at += step_utf8(text, at).length;
  return at;
}

}  // namespace

AddedTokens AddedTokens::load(const nlohmann::json& spec, const Normalizer& normalizer, const std::string& where) {
  AddedTokens added;
  if (spec.is_null()) return added;
  if (!spec.is_array()) throw Error(where + ": 'added_tokens' is " + shown(spec) + ", but must be an array");
  for (const auto& entry : spec) {
    const Fields f(entry, where, "added_tokens");
    AddedToken t;
    t.id = f.integer("id", 0, 1 << 24);
    t.content = f.string("content");
    t.special = f.boolean_or("special", false);
    t.single_word = f.boolean_or("single_word", false);
    t.lstrip = f.boolean_or("lstrip", false);
    t.rstrip = f.boolean_or("rstrip", false);
    t.normalized = f.boolean_or("normalized", !t.special);
    if (t.content.empty()) continue;  // as the tokenizers library does
    const int index = int(added.tokens_.size());
    insert(t.normalized ? added.normalized_ : added.plain_, t.normalized ? normalizer.apply(t.content) : t.content,
           index);
    added.tokens_.push_back(std::move(t));
  }
  return added;
}

void AddedTokens::insert(Trie& trie, std::string_view content, int token) {
  int node = 0;
  for (const char c : content) {
    const auto [it, fresh] = trie[node].next.emplace(static_cast<unsigned char>(c), int(trie.size()));
    const int child = it->second;
    if (fresh) trie.emplace_back();
    node = child;
  }
  if (node) trie[node].token = token;
}

AddedTokens::Match AddedTokens::longest(const Trie& trie, std::string_view text, std::size_t at) {
  Match best;
  int node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto it = trie[node].next.find(static_cast<unsigned char>(text[i]));
    if (it == trie[node].next.end()) break;
    node = it->second;
    if (trie[node].token >= 0) best = {i + 1 - at, trie[node].token};
  }
  return best;
}

std::vector<AddedTokens::Piece> AddedTokens::split(std::string_view text, bool normalized) const {
  const Trie& trie = normalized ? normalized_ : plain_;
  std::vector<Piece> pieces;
  std::size_t done = 0;  // the text before this is in `pieces`
  for (std::size_t at = 0; trie.size() > 1 && at < text.size();) {
    const Match match = longest(trie, text, at);
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& t = tokens_[match.token];
    std::size_t begin = at, end = at + match.length;
    at = end;
    if (t.single_word && (word_ends_at(text, begin) || word_begins_at(text, end))) continue;
    // As the tokenizers library does: a token that strips to the right may reach over the next one, which is found all
    // the same, unless it strips to the left and nothing is left of it.
    if (t.lstrip) begin = std::max(before_spaces(text, begin, 0), done);
    if (t.rstrip) end = after_spaces(text, end);
    if (begin >= end) continue;
    if (done < begin) pieces.push_back({text.substr(done, begin - done)});
    pieces.push_back({text.substr(begin, end - begin), t.id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done)});
  return pieces;
}

}  // namespace foretoken

#include "framework/model/vocabulary_map.h"

#include <algorithm>
#include <unordered_map>

#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// The tokens of a vocabulary by their bytes. Of several the one that is encoded counts, as "A" beside "<0x41>", else
// the first.
struct TokensByText {
  std::unordered_map<std::string, Token> plain, special;

  explicit TokensByText(const VocabularyMap::Side& side) {
    const Tokenizer& t = *side.tokenizer;
    for (Token id = 0; id < std::min(t.vocab(), side.vocab); ++id) {
      const std::string bytes = t.decode_inside({&id, 1}, true);
      if (bytes.empty()) continue;
      const auto [at, fresh] = (t.is_special(id) ? special : plain).try_emplace(bytes, id);
      if (!fresh && t.encode_inside(bytes) == std::vector{id}) at->second = id;
    }
  }
  std::size_t size() const { return plain.size() + special.size(); }
};

}  // namespace

VocabularyMap::VocabularyMap(const Side& target, const Side& own)
    : target_(target),
      own_(own),
      own_ids_(std::size_t(target.vocab + own.vocab), -1),
      target_ids_(std::size_t(own.vocab), -1),
      bytes_(256, -1) {
  const TokensByText theirs(target), ours(own);
  const auto join = [&](const auto& all, const auto& others) {
    for (const auto& [text, id] : all)
      if (const auto other = others.find(text); other != others.end())
        own_ids_[std::size_t(id)] = other->second, target_ids_[std::size_t(other->second)] = id, ++common_;
  };
  join(theirs.plain, ours.plain), join(theirs.special, ours.special);
  if (common_ == 0)
    throw Error("the draft model " + own.model + " and the target " + target.model +
                " have no token in common, so that nothing could be drafted; use a draft model whose tokenizer has "
                "tokens of the target's");
  for (Token id = 0; id < own.vocab; ++id) own_ids_[std::size_t(target.vocab + id)] = id;
  for (const auto& [text, id] : ours.plain)
    if (text.size() == 1) bytes_[static_cast<unsigned char>(text.front())] = id;
  summary_ = "the model " + own.model + " has " + std::to_string(common_) + " of the " + std::to_string(theirs.size()) +
             " tokens of the target " + target.model;
}

Token VocabularyMap::id_of(Token own) const {
  const Token id = target_ids_.at(std::size_t(own));
  return id < 0 ? target_.vocab + own : id;
}

void VocabularyMap::append(std::span<const Token> own, std::vector<Token>& to) const {
  for (const Token t : own)
    if (t < own_.vocab) to.push_back(id_of(t));
}

// Bytes that are no whole characters are read byte by byte.
void VocabularyMap::read_text(std::string_view text, std::vector<Token>& to) const {
  const auto byte = [this](char c) { return bytes_[static_cast<unsigned char>(c)]; };
  if (replace_broken_utf8(text) == text || !std::ranges::all_of(text, [&](char c) { return byte(c) >= 0; }))
    return append(own_.tokenizer->encode_inside(text), to);
  for (const char c : text) to.push_back(id_of(byte(c)));
}

void VocabularyMap::read(Token generated, std::vector<Token>& to) const {
  const Tokenizer& theirs = *target_.tokenizer;
  if (own_ids_.at(std::size_t(generated)) >= 0)
    to.push_back(generated);
  else if (!theirs.is_special(generated))
    read_text(theirs.decode_inside({&generated, 1}), to);
}

std::vector<Token> VocabularyMap::read_prompt(std::span<const Token> prompt) const {
  const Tokenizer &theirs = *target_.tokenizer, &ours = *own_.tokenizer;
  std::vector<Token> to;
  std::size_t at = 0;
  if (const auto before = theirs.beginning();
      std::ranges::equal(before, prompt.first(std::min(before.size(), prompt.size()))))
    at = before.size(), append(ours.beginning(), to);
  for (const std::size_t begin = at; at < prompt.size();) {
    const auto special = [&](Token t) { return theirs.is_special(t); };
    const auto run = std::ranges::find_if(prompt.subspan(at), special) - prompt.begin() - std::ptrdiff_t(at);
    const auto words = prompt.subspan(at, std::size_t(run));
    if (at == begin)
      append(ours.encode(theirs.decode(words), false), to);
    else
      append(ours.encode_inside(theirs.decode_inside(words)), to);
    at += words.size();
    if (at < prompt.size()) read(prompt[at++], to);
  }
  if (to.empty()) to.push_back(id_of(0));
  return to;
}

}  // namespace foretoken

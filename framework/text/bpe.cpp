#include "framework/text/bpe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <queue>

#include "framework/text/added_tokens.h"
#include "framework/text/byte_alphabet.h"
#include "framework/text/decoder.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

std::uint64_t key_of(Token left, Token right) {
  return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
}

// Bytes that no valid UTF-8 contains: a vocabulary may lack them.
bool never_in_utf8(int byte) { return byte == 0xc0 || byte == 0xc1 || byte >= 0xf5; }

void refuse_other_models(const Fields& model) {
  const std::string type = model.string_or("type", model.has("merges") ? "BPE" : "");  // old files have no type
  if (type != "BPE") model.refuse("type", "the only tokenizer model supported is \"BPE\", over bytes or characters");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.string_or(key, "").empty()) model.refuse(key, "only an empty one is supported");
  const json* dropout = model.find("dropout");
  if (dropout && !(dropout->is_number() && *dropout == 0))
    model.refuse("dropout", "only null is supported: it would make token ids random");
}

struct Candidate {
  int rank, at;
  Token token;
  bool operator>(const Candidate& o) const { return std::pair(rank, at) > std::pair(o.rank, o.at); }
};

}  // namespace

std::unique_ptr<const Bpe> Bpe::load(const json& spec, const std::string& where, bool byte_level) {
  const Fields model(spec, where, "model");
  refuse_other_models(model);
  std::unique_ptr<Bpe> bpe(new Bpe);
  bpe->byte_level_ = byte_level;
  bpe->ignore_merges_ = model.boolean_or("ignore_merges", false);
  bpe->read_vocabulary(model);
  if (byte_level)
    bpe->expect_all_bytes(where + ": model.vocab");
  else
    bpe->read_fallbacks(model);
  if (model.has("scores"))
    bpe->read_scores(model);
  else
    bpe->read_merges(model);
  return bpe;
}

std::optional<std::string> Bpe::spelled(const std::string& word) const {
  return byte_level_ ? bytes_of_letters(word) : std::optional(word);
}

void Bpe::read_vocabulary(const Fields& model) {
  const Fields vocab = model.object("vocab");
  const Token most = highest_id(vocab.all().size());
  token_of_byte_.fill(-1);
  std::vector<bool> taken;
  for (const auto& [word, value] : vocab.all().items()) {
    const Token id =
        value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t(most) ? value.get<Token>() : -1;
    if (id < 0)
      throw Error(vocab.where() + ": the token '" + word + "' has the id " + shown(value) +
                  ", but must have one from 0 to " + std::to_string(most) + "; download it again");
    if (taken.size() <= std::size_t(id)) taken.resize(std::size_t(id) + 1);
    if (taken[id])
      throw Error(vocab.where() + ": two tokens have the id " + std::to_string(id) + ", one of them '" + word +
                  "'; download it again");
    taken[id] = true;
    entries_.emplace_back(id, word);
    const auto bytes = spelled(word);
    if (!bytes) continue;  // no merge gives this token
    token_of_bytes_.emplace(*bytes, id);
    if (byte_level_ && bytes->size() == 1) token_of_byte_[static_cast<unsigned char>((*bytes)[0])] = id;
  }
  std::ranges::sort(entries_);
}

void Bpe::expect_all_bytes(const std::string& where) const {
  for (int b = 0; b < 256; ++b)
    if (token_of_byte_[b] < 0 && !never_in_utf8(b)) {
      std::string letter;
      append_utf8(letter, letter_of_byte(static_cast<unsigned char>(b)));
      throw Error(where + ": the vocabulary has no token for the byte " + std::to_string(b) + " ('" + letter +
                  "'), and byte-level BPE needs all of them; download it again");
    }
}

void Bpe::read_fallbacks(const Fields& model) {
  byte_fallback_ = model.boolean_or("byte_fallback", false);
  fuse_unknown_ = model.boolean_or("fuse_unk", false);
  for (int b = 0; b < 256; ++b)
    if (const auto it = token_of_bytes_.find(name_of_byte(b)); it != token_of_bytes_.end())
      token_of_byte_[b] = it->second;
  if (!model.has("unk_token")) {
    for (int b = 0; b < 256; ++b)
      if (!byte_fallback_ || (token_of_byte_[b] < 0 && !never_in_utf8(b)))
        model.refuse(
            "unk_token",
            "a vocabulary of characters needs it, or \"byte_fallback\" and a token <0x00> to <0xFF> for every byte");
    return;
  }
  const auto found = token_of_bytes_.find(model.string("unk_token"));
  if (found == token_of_bytes_.end()) model.refuse("unk_token", "the vocabulary does not have it; download it again");
  unknown_ = found->second;
}

void Bpe::read_merges(const Fields& model) {
  const json& merges = model.array("merges");
  merges_.reserve(merges.size() * 2);
  const auto refuse = [&](const json& merge, const std::string& why) {
    throw Error(model.where() + ": the merge " + shown(merge) + " " + why + "; download it again");
  };
  const auto token = [&](const json& merge, const std::string& word) {
    const auto bytes = spelled(word);
    const auto it = bytes ? token_of_bytes_.find(*bytes) : token_of_bytes_.end();
    if (it == token_of_bytes_.end()) refuse(merge, "makes or uses '" + word + "', which the vocabulary lacks");
    return it->second;
  };
  int rank = 0;
  for (const json& merge : merges) {
    std::string left, right;
    if (merge.is_string()) {
      const std::string text = merge.get<std::string>();
      if (text.starts_with("#version")) continue;
      const std::size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) refuse(merge, "is not of the form \"a b\"");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      refuse(merge, "is neither \"a b\" nor [\"a\", \"b\"]");
    }
    merges_[key_of(token(merge, left), token(merge, right))] = {rank++, token(merge, left + right)};
  }
}

// All merges into one token have one rank, and so have tokens of equal scores: the leftmost is next.
void Bpe::read_scores(const Fields& model) {
  const json& scores = model.array("scores");
  std::map<double, std::vector<Token>, std::greater<>> order;
  for (const auto& [id, word] : entries_) {
    const json score = std::size_t(id) < scores.size() ? scores[std::size_t(id)] : json();
    if (score.is_null()) continue;
    if (!score.is_number() || !std::isfinite(score.get<double>()))
      throw Error(model.where() + ": the token '" + word + "' has the score " + shown(score) +
                  ", but must have a number; download it again");
    order[score.get<double>()].push_back(id);
  }
  std::unordered_map<Token, std::string_view> words(entries_.begin(), entries_.end());
  int rank = 0;
  for (const auto& [score, ids] : order) {
    for (const Token id : ids) add_merges_into(id, words.at(id), rank);
    ++rank;
  }
}

void Bpe::add_merges_into(Token whole, std::string_view word, int rank) {
  for (std::size_t at = std::size_t(step_utf8(word, 0).length); at < word.size();
       at += std::size_t(step_utf8(word, at).length)) {
    const auto left = token_of_bytes_.find(std::string(word.substr(0, at)));
    const auto right = token_of_bytes_.find(std::string(word.substr(at)));
    if (left != token_of_bytes_.end() && right != token_of_bytes_.end())
      merges_[key_of(left->second, right->second)] = {rank, whole};
  }
}

const Bpe::Merge* Bpe::merge(Token left, Token right) const {
  const auto it = merges_.find(key_of(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void Bpe::encode(std::string_view view, std::vector<Token>& out) const {
  if (view.empty()) return;
  const std::string word(view);
  if (ignore_merges_)
    if (const auto it = token_of_bytes_.find(word); it != token_of_bytes_.end()) return out.push_back(it->second);
  if (word.size() > kCachedBytes) return merge_all(word, out);
  {
    const std::lock_guard lock(cache_lock_);
    if (const auto it = cache_.find(word); it != cache_.end()) {
      out.insert(out.end(), it->second.begin(), it->second.end());
      return;
    }
  }
  std::vector<Token> tokens;
  merge_all(word, tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
  const std::lock_guard lock(cache_lock_);
  if (cache_.size() < kCachedWords) cache_.emplace(word, std::move(tokens));
}

// As BPE::merge_word of the tokenizers library: unknown characters are appended once the next known one follows.
void Bpe::add_character(std::string_view character, std::vector<Token>& tokens, bool& unknown) const {
  if (const auto it = token_of_bytes_.find(std::string(character)); it != token_of_bytes_.end()) {
    if (unknown) tokens.push_back(unknown_);
    unknown = false;
    tokens.push_back(it->second);
    return;
  }
  const auto token = [this](char c) { return token_of_byte_[static_cast<unsigned char>(c)]; };
  if (byte_fallback_ && std::ranges::all_of(character, [&](char c) { return token(c) >= 0; })) {
    for (const char c : character) tokens.push_back(token(c));
    return;
  }
  if (unknown && !fuse_unknown_) tokens.push_back(unknown_);
  unknown = true;
}

std::vector<Token> Bpe::symbols_of(std::string_view word) const {
  std::vector<Token> tokens;
  if (byte_level_) {
    for (const char c : word) tokens.push_back(token_of_byte_[static_cast<unsigned char>(c)]);
    return tokens;
  }
  bool unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    const auto length = std::size_t(step_utf8(word, at).length);
    add_character(word.substr(at, length), tokens, unknown);
    at += length;
  }
  if (unknown) tokens.push_back(unknown_);
  return tokens;
}

// Lowest rank first, leftmost among equals, as Word::merge_all of the tokenizers library: a candidate is valid while
// its pair still gives the same token.
void Bpe::merge_all(std::string_view word, std::vector<Token>& out) const {
  const std::vector<Token> tokens = symbols_of(word);
  const int n = int(tokens.size());
  std::vector<Symbol> symbols(n);
  for (int i = 0; i < n; ++i) symbols[i] = {tokens[i], i - 1, i + 1 < n ? i + 1 : -1};

  std::vector<Candidate> first;
  const auto candidate = [&](int at) -> std::pair<const Merge*, Candidate> {
    const Merge* m =
        at >= 0 && symbols[at].next >= 0 ? merge(symbols[at].token, symbols[symbols[at].next].token) : nullptr;
    return {m, m ? Candidate{m->rank, at, m->token} : Candidate{}};
  };
  for (int i = 0; i < n; ++i)
    if (const auto [m, c] = candidate(i); m) first.push_back(c);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(), std::move(first));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.at];
    if (left.token < 0 || left.next < 0) continue;
    const auto [m, now] = candidate(top.at);
    if (!m || m->token != top.token) continue;
    Symbol& right = symbols[left.next];
    left.token = top.token;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0) symbols[left.next].previous = top.at;
    for (int at : {left.previous, top.at})
      if (const auto [again, c] = candidate(at); again) queue.push(c);
  }
  for (int i = n > 0 ? 0 : -1; i >= 0; i = symbols[i].next) out.push_back(symbols[i].token);
}

}  // namespace foretoken

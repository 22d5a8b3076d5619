#include "framework/text/tokenizer.h"

#include <optional>
#include <unordered_map>

#include <xxhash.h>

#include "framework/text/added_tokens.h"
#include "framework/text/bpe.h"
#include "framework/text/decoder.h"
#include "framework/text/json_file.h"
#include "framework/text/normalizer.h"
#include "framework/text/post_processor.h"
#include "framework/text/pre_tokenizer.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(const json& file, const std::string& where);

  std::vector<Token> encode(std::string_view text, bool special) const override;
  std::vector<Token> encode_inside(std::string_view text) const override;
  std::span<const Token> beginning() const override { return frame_.before; }
  std::string decode(std::span<const Token> tokens, bool special) const override;
  std::string decode_inside(std::span<const Token> tokens, bool special) const override;
  int vocab() const override { return int(entries_.size()); }
  bool is_special(Token t) const override { return t >= 0 && t < vocab() && entries_[t].special; }
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  struct Entry {
    std::optional<std::string> bytes;  // within a text; nullopt: no token has this id
    std::string first{};               // as the first token of a text
    bool special = false;
  };
  const Entry* shown(Token token, bool special) const;
  void add_all(const std::string& where);
  void encode_text(std::string_view bytes, TextPlace place, std::vector<Token>& ids) const;
  std::uint64_t hash() const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokens added_;
  std::unique_ptr<const Bpe> bpe_;
  PostProcessor frame_;
  Decoder decoder_;
  std::vector<Entry> entries_;  // by id
  std::uint64_t fingerprint_ = 0;
};

const json& part(const json& file, const char* key) {
  static const json kNull;
  const auto it = file.find(key);
  return it == file.end() ? kNull : *it;
}

BpeTokenizer::BpeTokenizer(const json& file, const std::string& where) {
  const Fields top(file, where);
  const Fields model = top.object("model");
  normalizer_ = Normalizer::load(part(file, "normalizer"), where);
  pre_tokenizer_ = PreTokenizer::load(part(file, "pre_tokenizer"), where);
  added_ = AddedTokens::load(part(file, "added_tokens"), normalizer_, where);
  frame_ = PostProcessor::load(part(file, "post_processor"), where);
  decoder_ = Decoder::load(top.object("decoder").all(), where);
  if (decoder_.byte_level() != pre_tokenizer_.byte_level())
    top.refuse("decoder", "it and the pre_tokenizer must both be ByteLevel, or neither; download it again");
  bpe_ = Bpe::load(model.all(), where, decoder_.byte_level());

  for (const auto& [id, word] : bpe_->entries()) {
    if (entries_.size() <= std::size_t(id)) entries_.resize(std::size_t(id) + 1);
    entries_[id] = {decoder_.inside(word), decoder_.first(word)};
  }
  add_all(where);
  for (const auto& ids : {frame_.before, frame_.after})
    for (Token id : ids)
      if (id >= vocab() || !entries_[id].bytes)
        top.refuse("post_processor", "no token has the id " + std::to_string(id));
  fingerprint_ = hash();
}

// The vocabulary may also contain an added token, under the same id: then it is text, not GPT-2's alphabet.
void BpeTokenizer::add_all(const std::string& where) {
  std::unordered_map<std::string_view, Token> ids;
  std::unordered_map<Token, std::string_view> words;
  for (const auto& [id, word] : bpe_->entries()) {
    ids.emplace(word, id);
    words.emplace(id, word);
  }
  for (const AddedToken& token : added_.all()) {
    const auto refuse = [&](const std::string& other) {
      throw Error(where + ": the added token '" + token.content + "' has the id " + std::to_string(token.id) +
                  ", but " + other + "; download it again, or correct the ids");
    };
    if (const auto [it, fresh] = ids.emplace(token.content, token.id); it->second != token.id)
      refuse("elsewhere it has the id " + std::to_string(it->second));
    if (const auto [it, fresh] = words.emplace(token.id, token.content); it->second != token.content)
      refuse("elsewhere that is '" + std::string(it->second) + "'");
    if (const Token most = highest_id(bpe_->entries().size() + added_.all().size()); token.id > most)
      refuse("the highest that so few tokens need is " + std::to_string(most));
    if (entries_.size() <= std::size_t(token.id)) entries_.resize(std::size_t(token.id) + 1);
    entries_[token.id] = {token.content, token.content, token.special};
    if (decoder_.byte_level()) continue;
    const std::string found = token.normalized ? normalizer_.apply(token.content) : token.content;  // "\u2581<tool>"
    entries_[token.id] = {decoder_.inside(found), decoder_.first(found), token.special};
  }
}

std::vector<Token> BpeTokenizer::encode(std::string_view text, bool special) const {
  std::vector<Token> ids;
  if (special) ids = frame_.before;
  encode_text(text, TextPlace::beginning, ids);
  if (special) ids.insert(ids.end(), frame_.after.begin(), frame_.after.end());
  return ids;
}

std::vector<Token> BpeTokenizer::encode_inside(std::string_view text) const {
  std::vector<Token> ids;
  encode_text(text, TextPlace::inside, ids);
  return ids;
}

void BpeTokenizer::encode_text(std::string_view bytes, TextPlace place, std::vector<Token>& ids) const {
  const std::string text = replace_broken_utf8(bytes);
  for (const auto& piece : added_.split(text, /*normalized=*/false)) {
    if (piece.token >= 0) {
      ids.push_back(piece.token);
      continue;
    }
    const bool front = piece.text.data() == text.data();
    const std::string normal = normalizer_.apply(piece.text, !front || place != TextPlace::inside);
    for (const auto& inner : added_.split(normal, /*normalized=*/true)) {
      if (inner.token >= 0) {
        ids.push_back(inner.token);
        continue;
      }
      const TextPlace at = front && inner.text.data() == normal.data() ? place : TextPlace::behind_added;
      for (const std::string& word : pre_tokenizer_.split(inner.text, at)) bpe_->encode(word, ids);
    }
  }
}

// The entry of a token; null where decoded text omits it.
const BpeTokenizer::Entry* BpeTokenizer::shown(Token t, bool special) const {
  const bool is = t >= 0 && t < vocab() && entries_[t].bytes && (special || !entries_[t].special);
  return is ? &entries_[t] : nullptr;
}

std::string BpeTokenizer::decode_inside(std::span<const Token> tokens, bool special) const {
  std::string bytes;
  for (const Token t : tokens)
    if (const Entry* e = shown(t, special)) bytes += *e->bytes;
  return bytes;
}

std::string BpeTokenizer::decode(std::span<const Token> tokens, bool special) const {
  for (; !tokens.empty(); tokens = tokens.subspan(1))
    if (const Entry* first = shown(tokens.front(), special))
      return decoder_.begin(first->first + decode_inside(tokens.subspan(1), special));
  return "";
}

std::uint64_t BpeTokenizer::hash() const {
  std::string all;  // of each id: length (4 bytes, little-endian; ffffffff: no token), bytes
  for (const Entry& e : entries_) {
    const std::uint32_t length = e.bytes ? std::uint32_t(e.bytes->size()) : 0xffffffffu;
    for (int shift = 0; shift < 32; shift += 8) all.push_back(char(length >> shift & 0xff));
    if (e.bytes) all += *e.bytes;
  }
  return XXH3_64bits(all.data(), all.size());
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::load(const fs::path& path) {
  fs::path file = path;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    file = path / "tokenizer.json";
    for (const char* other : {"tokenizer.model", "vocab.json", "vocab.txt"})
      if (!has_file(file) && has_file(path / other))
        throw Error(path.string() + " holds " + other +
                    " but no tokenizer.json, the only kind of tokenizer that is read; "
                    "save it with Transformers as a fast tokenizer");
  }
  return from(read_json(file), file.string());
}

std::shared_ptr<const Tokenizer> Tokenizer::from(const json& contents, const std::string& where) {
  return std::make_shared<BpeTokenizer>(contents, where);
}

}  // namespace foretoken

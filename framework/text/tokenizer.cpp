#include "framework/text/tokenizer.h"

#include <optional>
#include <unordered_map>
#include <utility>

#include <xxhash.h>

#include "framework/text/added_tokens.h"
#include "framework/text/bpe.h"
#include "framework/text/byte_alphabet.h"
#include "framework/text/json_file.h"
#include "framework/text/normalizer.h"
#include "framework/text/pre_tokenizer.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// The tokens that a post-processor puts around a text.
struct Frame {
  std::vector<Token> before, after;
};

void read_template(const Fields& fields, Frame& frame) {
  bool text_seen = false;
  std::vector<Token> before, after;
  for (const json& part : fields.array("single")) {
    const Fields item(part, fields.where(), "post_processor.single");
    if (item.has("Sequence")) {
      if (std::exchange(text_seen, true)) fields.refuse("single", "the text may stand in it only once");
      continue;
    }
    const std::string name = item.object("SpecialToken").string("id");
    for (const json& id : fields.object("special_tokens").object(name.c_str()).array("ids")) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > 1 << 24)
        fields.refuse("special_tokens", "its ids must be token ids");
      (text_seen ? after : before).push_back(id.get<Token>());
    }
  }
  if (!text_seen) fields.refuse("single", "the text must stand in it");
  frame.before.insert(frame.before.begin(), before.begin(), before.end());
  frame.after.insert(frame.after.end(), after.begin(), after.end());
}

void read_post_processor(const json& spec, const std::string& where, Frame& frame) {
  if (spec.is_null()) return;
  const Fields fields(spec, where, "post_processor");
  const std::string type = fields.string("type");
  if (type == "ByteLevel") return;  // moves offsets, not ids
  if (type == "TemplateProcessing") return read_template(fields, frame);
  if (type != "Sequence")
    fields.refuse("type", "the supported post-processors are ByteLevel, TemplateProcessing and Sequence");
  for (const json& part : fields.array("processors")) read_post_processor(part, where, frame);
}

void check_decoder(const json& spec, const std::string& where) {
  const Fields fields(spec, where, "decoder");
  const std::string type = fields.string("type");
  if (type == "ByteLevel") return;
  if (type != "Sequence") fields.refuse("type", "the only decoder supported is ByteLevel");
  if (fields.array("decoders").size() != 1) fields.refuse("decoders", "the only decoder supported is ByteLevel");
  check_decoder(fields.array("decoders")[0], where);
}

class ByteLevelTokenizer : public Tokenizer {
 public:
  ByteLevelTokenizer(const json& file, const std::string& where);

  std::vector<Token> encode(std::string_view text, bool special) const override;
  std::string decode(std::span<const Token> tokens, bool special) const override;
  int vocab() const override { return int(entries_.size()); }
  bool is_special(Token t) const override { return t >= 0 && t < vocab() && entries_[t].special; }
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  struct Entry {
    std::optional<std::string> bytes;  // none: no token has this id
    bool special = false;
  };
  void add_all(const std::string& where);
  void encode_plain(std::string_view text, std::vector<Token>& ids) const;
  std::uint64_t hash() const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokens added_;
  std::unique_ptr<const Bpe> bpe_;
  Frame frame_;
  std::vector<Entry> entries_;  // by id
  std::uint64_t fingerprint_ = 0;
};

const json& part(const json& file, const char* key) {
  static const json kNull;
  const auto it = file.find(key);
  return it == file.end() ? kNull : *it;
}

ByteLevelTokenizer::ByteLevelTokenizer(const json& file, const std::string& where) {
  const Fields top(file, where);
  bpe_ = Bpe::load(top.object("model").all(), where);
  normalizer_ = Normalizer::load(part(file, "normalizer"), where);
  pre_tokenizer_ = PreTokenizer::load(part(file, "pre_tokenizer"), where);
  added_ = AddedTokens::load(part(file, "added_tokens"), normalizer_, where);
  read_post_processor(part(file, "post_processor"), where, frame_);
  check_decoder(top.object("decoder").all(), where);

  for (const auto& [id, word] : bpe_->entries()) {
    if (entries_.size() <= std::size_t(id)) entries_.resize(std::size_t(id) + 1);
    entries_[id].bytes = bytes_of_letters(word).value_or(word);
  }
  add_all(where);
  for (const auto& ids : {frame_.before, frame_.after})
    for (Token id : ids)
      if (id >= vocab() || !entries_[id].bytes)
        top.refuse("post_processor", "no token has the id " + std::to_string(id));
  fingerprint_ = hash();
}

// An added token may also stand in the vocabulary, under the same id: then as text, not in GPT-2's alphabet.
void ByteLevelTokenizer::add_all(const std::string& where) {
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
    if (entries_.size() <= std::size_t(token.id)) entries_.resize(std::size_t(token.id) + 1);
    entries_[token.id] = {token.content, token.special};
  }
}

std::vector<Token> ByteLevelTokenizer::encode(std::string_view bytes, bool special) const {
  const std::string text = replace_broken_utf8(bytes);
  std::vector<Token> ids;
  if (special) ids = frame_.before;
  for (const auto& piece : added_.split(text, /*normalized=*/false)) {
    if (piece.token >= 0) {
      ids.push_back(piece.token);
      continue;
    }
    const std::string normal = normalizer_.apply(piece.text);
    for (const auto& inner : added_.split(normal, /*normalized=*/true)) {
      if (inner.token >= 0)
        ids.push_back(inner.token);
      else
        encode_plain(inner.text, ids);
    }
  }
  if (special) ids.insert(ids.end(), frame_.after.begin(), frame_.after.end());
  return ids;
}

void ByteLevelTokenizer::encode_plain(std::string_view text, std::vector<Token>& ids) const {
  for (const std::string& word : pre_tokenizer_.split(text)) bpe_->encode(word, ids);
}

std::string ByteLevelTokenizer::decode(std::span<const Token> tokens, bool special) const {
  std::string bytes;
  for (Token t : tokens)
    if (t >= 0 && t < vocab() && entries_[t].bytes && (special || !entries_[t].special)) bytes += *entries_[t].bytes;
  return bytes;
}

std::uint64_t ByteLevelTokenizer::hash() const {
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
  if (fs::is_directory(path)) {
    file = path / "tokenizer.json";
    for (const char* other : {"tokenizer.model", "vocab.json", "vocab.txt"})
      if (!fs::exists(file) && fs::exists(path / other))
        throw Error(path.string() + " holds " + other +
                    " but no tokenizer.json, the only kind of tokenizer that is read; "
                    "save it with Transformers as a fast tokenizer (byte-level BPE)");
  }
  return std::make_shared<ByteLevelTokenizer>(read_json(file), file.string());
}

}  // namespace foretoken

#include "framework/model/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "framework/model/gguf/gguf_cursor.h"
#include "framework/model/gguf/pre_tokenizer_names.h"
#include "framework/text/known_names.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTokenTypes = "tokenizer.ggml.token_type";
constexpr const char* kModel = "tokenizer.ggml.model";
constexpr std::size_t kLongest = 1024;  // bytes of a token

enum TokenType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };  // as in the file

struct Word {
  std::string text;
  int type = kNormal;
};

// The tokens by id.
std::vector<Word> words_of(const GgufMetadata& m) {
  const auto& texts = m.strings(kTokens);
  std::vector<std::int64_t> types(texts.size(), kNormal);
  if (m.has(kTokenTypes)) types = m.integers(kTokenTypes);
  if (types.size() != texts.size())
    m.refuse(kTokenTypes,
             "must have one type for each of the " + std::to_string(texts.size()) + " tokens" + kConvertAgain);
  std::vector<Word> words;
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string text(texts[i]), who = "token " + std::to_string(i) + ", '" + shown_name(text) + "', ";
    if (text.empty() || text.size() > kLongest || replace_broken_utf8(text) != text)
      m.refuse(kTokens, who + "must be 1 to " + std::to_string(kLongest) + " bytes of UTF-8" + kConvertAgain);
    if (!seen.insert(texts[i]).second) m.refuse(kTokens, who + "occurs twice" + kConvertAgain);
    if (types[i] < kNormal || types[i] > kByte)
      m.refuse(kTokenTypes,
               who + "has the type " + std::to_string(types[i]) + ", and 1 to 6 are known" + kConvertAgain);
    words.push_back({text, int(types[i])});
  }
  return words;
}

// Added tokens are found in the text as it is; those of control are special.
json added_tokens(const std::vector<Word>& words) {
  json added = json::array();
  for (std::size_t i = 0; i < words.size(); ++i) {
    const int type = words[i].type;
    if (type != kControl && type != kUserDefined && type != kUnknown) continue;
    added.push_back({{"id", i}, {"content", words[i].text}, {"special", type != kUserDefined}, {"normalized", false}});
  }
  return added;
}

// Tokens of this kind are put around every text.
json frame_token(const GgufMetadata& m, const std::string& kind, const std::vector<Word>& words, json& ids) {
  const auto id = std::size_t(m.integer("tokenizer.ggml." + kind + "_token_id", 0, int(words.size()) - 1));
  const std::string& text = words[id].text;
  ids[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
  return {{"SpecialToken", {{"id", text}, {"type_id", 0}}}};
}

json post_processor(const GgufMetadata& m, const std::vector<Word>& words, bool begins) {
  json single = json::array(), ids = json::object();
  if (m.boolean_or("tokenizer.ggml.add_bos_token", begins)) single.push_back(frame_token(m, "bos", words, ids));
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (m.boolean_or("tokenizer.ggml.add_eos_token", false)) single.push_back(frame_token(m, "eos", words, ids));
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", ids}};
}

// Tokens that text can become by merging. Those of control are found before, and unused ones fill up the embedding.
json vocabulary(const std::vector<Word>& words) {
  json vocab = json::object();
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i].type == kNormal || words[i].type == kByte) vocab[words[i].text] = i;
  return vocab;
}

json byte_level(const GgufMetadata& m, const std::vector<Word>& words) {
  const std::string pre = m.string("tokenizer.ggml.pre");
  if (const auto& known = pre_tokenizer_names(); std::ranges::find(known, pre) == known.end())
    m.refuse("tokenizer.ggml.pre", "the known rules are " + listed(known) + suggestion(pre, known));
  const NamedPreTokenizer parts = named_pre_tokenizer(pre);
  json merges = json::array();
  for (const std::string_view merge : m.strings("tokenizer.ggml.merges")) merges.emplace_back(merge);
  return {{"normalizer", parts.normalizer},
          {"pre_tokenizer", parts.pre_tokenizer},
          {"post_processor", post_processor(m, words, parts.begins)},
          {"decoder", {{"type", "ByteLevel"}}},
          {"added_tokens", added_tokens(words)},
          {"model",
           {{"type", "BPE"},
            {"ignore_merges", parts.ignore_merges},
            {"vocab", vocabulary(words)},
            {"merges", std::move(merges)}}}};
}

// Scores by id; null for a token that no merge gives.
json scores_of(const GgufMetadata& m, const std::vector<Word>& words) {
  constexpr const char* kScores = "tokenizer.ggml.scores";
  const std::vector<double> scores = m.numbers(kScores);
  if (scores.size() != words.size())
    m.refuse(kScores,
             "must have one score for each of the " + std::to_string(words.size()) + " tokens" + kConvertAgain);
  json all = json::array();
  for (std::size_t i = 0; i < words.size(); ++i) all.push_back(words[i].type == kNormal ? json(scores[i]) : json());
  return all;
}

json sentence_piece(const GgufMetadata& m, const std::vector<Word>& words) {
  if (m.boolean_or("tokenizer.ggml.remove_extra_whitespaces", false))
    m.refuse("tokenizer.ggml.remove_extra_whitespaces",
             "only false is supported; choose a model whose tokenizer keeps them");
  if (m.has("tokenizer.ggml.precompiled_charsmap"))
    m.refuse("tokenizer.ggml.precompiled_charsmap",
             "changes of characters before tokens are not supported; choose a model without them");
  const bool prefix = m.boolean_or("tokenizer.ggml.add_space_prefix", true);
  const json spaces = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const json marks = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  json normalizers = json::array(), decoders = json::array({marks, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
  normalizers.push_back(spaces);
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", post_processor(m, words, true)},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
          {"added_tokens", added_tokens(words)},
          {"model",
           {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", vocabulary(words)}, {"scores", scores_of(m, words)}}}};
}

}  // namespace

std::shared_ptr<const Tokenizer> gguf_tokenizer(const GgufMetadata& m) {
  const std::string model = m.string(kModel), where = "the tokenizer of " + m.where();
  const std::vector<Word> words = words_of(m);
  if (model == "gpt2") return Tokenizer::from(byte_level(m, words), where);
  if (model == "llama") return Tokenizer::from(sentence_piece(m, words), where);
  m.refuse(kModel, "the supported tokenizers are \"gpt2\" (byte-level BPE) and \"llama\" (SentencePiece's BPE)");
}

}  // namespace foretoken

// Text to tokens and back, from a Hugging Face tokenizer.json: byte-level BPE with the pre-tokenizer rules of GPT-2,
// Llama-3 and Qwen, and BPE over characters as in SentencePiece's files (Llama-2, TinyLlama, Mistral). This module must
// not know models or engines.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "kernels/distribution.h"  // Token

namespace foretoken {

class Tokenizer {
 public:
  // Reads DIR/tokenizer.json (or the file itself). Anything that is not implemented is an Error that names it.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& directory_or_file);
  // From what a tokenizer.json contains; `where` names it in messages.
  static std::shared_ptr<const Tokenizer> from(const nlohmann::json& contents, const std::string& where);
  virtual ~Tokenizer() = default;

  // As Transformers' fast tokenizer does. `special`: apply the post-processor (a leading bos where the file has one).
  // Invalid UTF-8 is read as by Python's decode(errors="replace"): every invalid piece is one U+FFFD. Safe from any
  // thread.
  virtual std::vector<Token> encode(std::string_view text, bool special = true) const = 0;
  // The tokens of a text that continues another one: nothing is put before it or behind it, neither tokens nor the
  // space that SentencePiece puts before a text's first word.
  virtual std::vector<Token> encode_inside(std::string_view text) const = 0;
  // What `encode` puts before every text ("<s>").
  virtual std::span<const Token> beginning() const = 0;
  // Bytes of the tokens, one after another; may end inside a UTF-8 character. Special tokens are omitted unless
  // `special`; ids without a token always are. An added token of a byte-level file is decoded to its own text
  // (Transformers interprets "<\u00e9>" as bytes, which garbles it).
  virtual std::string decode(std::span<const Token> tokens, bool special = false) const = 0;
  // The same for tokens that continue a text: the space that SentencePiece puts before a text's first word, which
  // `decode` removes, is kept. Outputs that arrive token by token are decoded so.
  virtual std::string decode_inside(std::span<const Token> tokens, bool special = false) const = 0;
  virtual int vocab() const = 0;  // the highest id + 1, added tokens included
  virtual bool is_special(Token token) const = 0;
  // A hash of the map from ids to bytes: two models share a vocabulary exactly where these are equal.
  virtual std::uint64_t fingerprint() const = 0;
};

// Turns a growing list of tokens into pieces of whole UTF-8 characters, for streaming.
class TextStream {
 public:
  explicit TextStream(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  std::string push(std::span<const Token> tokens);  // what can be shown now
  std::string finish();                             // the rest, with invalid bytes replaced by U+FFFD

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string held_;  // bytes of a character that is not complete yet
};

}  // namespace foretoken

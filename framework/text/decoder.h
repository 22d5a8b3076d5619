// Turns the words of a vocabulary back into the bytes of a text. This module must not know merges, nor which tokens are
// special.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "framework/text/pattern.h"

namespace foretoken {

class Decoder {
 public:
  // `spec` is "decoder" of a tokenizer.json: ByteLevel; or what SentencePiece vocabularies use: Metaspace, or a
  // Sequence of Replace and ByteFallback, then Fuse, then Strip at the beginning. Others are an Error that names them.
  static Decoder load(const nlohmann::json& spec, const std::string& where);

  bool byte_level() const { return byte_level_; }
  // The bytes of a word that is not the first of its text.
  std::string inside(const std::string& word) const;
  // The bytes of the first word of a text, for which Metaspace omits its marks. Strip is applied by `begin`.
  std::string first(const std::string& word) const;
  // Removes the space that SentencePiece puts before the first word of a text.
  std::string begin(std::string text) const;

 private:
  using Replacement = std::pair<Pattern, std::string>;
  void add(const nlohmann::json& spec, const std::string& where);

  bool byte_level_ = false, byte_fallback_ = false, fused_ = false;
  std::vector<Replacement> replace_;  // before ByteFallback
  std::string metaspace_;             // omitted from the first word; "": nothing
  std::string strip_;                 // a character
  int most_stripped_ = 0;
};

// "<0x0A>", as SentencePiece names bytes in its vocabularies.
std::string name_of_byte(int byte);
// The byte of such a name; -1 for any other word.
int byte_of_name(std::string_view word);

}  // namespace foretoken

// Changes text before it is split: a Unicode normal form, or SentencePiece's marks in place of spaces, or nothing. This
// module must not know tokens.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "framework/text/pattern.h"

namespace foretoken {

class Normalizer {
 public:
  // `spec` is "normalizer" of a tokenizer.json: null, NFC, NFD, NFKC, NFKD, Prepend, Replace, or a Sequence of these.
  // Others are an Error that names them.
  static Normalizer load(const nlohmann::json& spec, const std::string& where);
  // Valid UTF-8 in, valid UTF-8 out. The tables are those of the installed utf8proc; Transformers uses those of Unicode
  // 10 or older, so it may order newer combining marks differently.
  // `begins`: false where the text continues another one, so that nothing is put before it.
  std::string apply(std::string_view text, bool begins = true) const;

 private:
  enum class Kind { form, prepend, replace };
  struct Step {
    Kind kind;
    int form = 0;  // options of utf8proc
    std::vector<Pattern> pattern{};
    std::string content{};  // prepended to a text that is not empty, or replaces the pattern
  };
  void add(const nlohmann::json& spec, const std::string& where);

  std::vector<Step> steps_;
};

}  // namespace foretoken

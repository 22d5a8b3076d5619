// What happens to text before it is split: nothing, or a Unicode normal form. This room must not know tokens.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace foretoken {

class Normalizer {
 public:
  // `spec` is "normalizer" of a tokenizer.json: null, NFC, NFD, NFKC, NFKD, or a Sequence of these. Others are an Error that names them.
  static Normalizer load(const nlohmann::json& spec, const std::string& where);
  // Valid UTF-8 in, valid UTF-8 out. The tables are those of the installed utf8proc; Transformers has those of Unicode 10 or
  // older, so marks that came later may be ordered otherwise there.
  std::string apply(std::string_view text) const;

 private:
  std::vector<int> forms_;  // options of utf8proc, applied in order
};

}  // namespace foretoken

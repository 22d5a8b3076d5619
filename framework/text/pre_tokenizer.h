// Splits text into words. Merges happen inside a word only. This module must not know tokens.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "framework/text/pattern.h"

namespace foretoken {

// Where a text stands: at the beginning of the input, behind an added token, or so that it continues plain text.
enum class TextPlace { beginning, behind_added, inside };

class PreTokenizer {
 public:
  // `spec` is "pre_tokenizer" of a tokenizer.json: null, ByteLevel, Split, Digits, Metaspace, or a Sequence of these in
  // which nothing follows ByteLevel. Others are an Error that names them.
  static PreTokenizer load(const nlohmann::json& spec, const std::string& where);
  // The words of valid UTF-8, in order, none empty. They are plain text, not in GPT-2's alphabet.
  std::vector<std::string> split(std::string_view text, TextPlace place) const;
  // Whether a ByteLevel is among the steps: then merges are over bytes, otherwise over characters.
  bool byte_level() const { return byte_level_; }

 private:
  enum class Behavior { isolated, removed, contiguous, merged_with_previous, merged_with_next };
  enum class Prefix { none, always, first };
  struct Step {
    Prefix prefix =
        Prefix::none;  // puts `mark` before every word that does not begin with it, or before the first word only
    std::string mark{};
    bool marks_spaces = false;       // every space becomes a mark first
    std::vector<Pattern> pattern{};  // then splits; empty: does not split
    Behavior behavior = Behavior::isolated;
    bool invert = false;
  };
  struct Piece {
    std::size_t begin, end;
    bool matched;
  };

  void add(const nlohmann::json& spec, const std::string& where);
  void add_metaspace(const nlohmann::json& spec, const std::string& where);
  static void put_marks(const Step& step, TextPlace place, std::vector<std::string>& words);
  static Step split_step(const nlohmann::json& spec, const std::string& where);
  static std::vector<Piece> pieces(const Step& step, std::string_view text);
  static std::vector<Piece> arranged(Behavior behavior, std::vector<Piece> pieces);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace foretoken

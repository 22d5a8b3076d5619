// Splits text into the words inside which merges happen. This room must not know tokens.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "framework/text/pattern.h"

namespace foretoken {

class PreTokenizer {
 public:
  // `spec` is "pre_tokenizer" of a tokenizer.json: ByteLevel, Split, Digits, or a Sequence of these that ends with
  // ByteLevel. Others are an Error that names them.
  static PreTokenizer load(const nlohmann::json& spec, const std::string& where);
  // The words of valid UTF-8, in order, none empty. They are text, not GPT-2's alphabet.
  std::vector<std::string> split(std::string_view text) const;

 private:
  enum class Behavior { isolated, removed, contiguous, merged_with_previous, merged_with_next };
  struct Step {
    bool prefix_space = false;  // the step is: put a space before a text that has none; else: split
    std::vector<Pattern> pattern{};
    Behavior behavior = Behavior::isolated;
    bool invert = false;
  };
  struct Piece {
    std::size_t begin, end;
    bool matched;
  };

  void add(const nlohmann::json& spec, const std::string& where);
  static Step split_step(const nlohmann::json& spec, const std::string& where);
  static std::vector<Piece> pieces(const Step& step, std::string_view text);
  static std::vector<Piece> arranged(Behavior behavior, std::vector<Piece> pieces);

  std::vector<Step> steps_;
  bool bytes_ = false;  // a ByteLevel has been met
};

}  // namespace foretoken

#include "framework/text/pre_tokenizer.h"

#include <algorithm>
#include <map>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// The rule built into ByteLevel, from GPT-2's encoder.py.
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

PreTokenizer PreTokenizer::load(const nlohmann::json& spec, const std::string& where) {
  PreTokenizer p;
  if (!spec.is_null()) p.add(spec, where);
  return p;
}

void PreTokenizer::add(const nlohmann::json& spec, const std::string& where) {
  const Fields fields(spec, where, "pre_tokenizer");
  const std::string type = fields.string("type");
  if (type == "Sequence") {
    for (const auto& part : fields.array("pretokenizers")) add(part, where);
    return;
  }
  if (byte_level_) fields.refuse("type", "ByteLevel must be the last pre-tokenizer");
  if (type == "ByteLevel") {
    byte_level_ = true;
    if (fields.boolean_or("add_prefix_space", true)) steps_.push_back({.prefix = Prefix::always, .mark = " "});
    if (fields.boolean_or("use_regex", true)) steps_.push_back({.pattern = {Pattern::regex(kGpt2, where)}});
  } else if (type == "Digits") {
    steps_.push_back(
        {.pattern = {Pattern::regex(fields.boolean_or("individual_digits", false) ? "\\p{N}" : "\\p{N}+", where)}});
  } else if (type == "Split") {
    steps_.push_back(split_step(spec, where));
  } else if (type == "Metaspace") {
    add_metaspace(spec, where);
  } else {
    fields.refuse("type", "the supported pre-tokenizers are ByteLevel, Split, Digits, Metaspace and Sequence");
  }
}

// Old files have "add_prefix_space" where newer ones have "prepend_scheme".
void PreTokenizer::add_metaspace(const nlohmann::json& spec, const std::string& where) {
  const Fields fields(spec, where, "pre_tokenizer");
  Step step{.marks_spaces = true};
  step.mark = fields.string_or("replacement", "\u2581");
  if (step.mark.empty()) fields.refuse("replacement", "must be a character");
  const std::string scheme =
      fields.string_or("prepend_scheme", fields.boolean_or("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    fields.refuse("prepend_scheme", "the supported are \"always\", \"first\" and \"never\"");
  if (scheme == "first" && !steps_.empty())
    fields.refuse("prepend_scheme", "\"first\" is supported only where Metaspace comes first");
  if (scheme != "never") step.prefix = scheme == "first" ? Prefix::first : Prefix::always;
  if (fields.boolean_or("split", true)) {
    step.pattern = {Pattern::literal(step.mark, where)};
    step.behavior = Behavior::merged_with_next;
  }
  steps_.push_back(std::move(step));
}

PreTokenizer::Step PreTokenizer::split_step(const nlohmann::json& spec, const std::string& where) {
  static const std::map<std::string, Behavior> kBehaviors = {{"Isolated", Behavior::isolated},
                                                             {"Removed", Behavior::removed},
                                                             {"Contiguous", Behavior::contiguous},
                                                             {"MergedWithPrevious", Behavior::merged_with_previous},
                                                             {"MergedWithNext", Behavior::merged_with_next}};
  const Fields fields(spec, where, "pre_tokenizer");
  const auto behavior = kBehaviors.find(fields.string("behavior"));
  if (behavior == kBehaviors.end())
    fields.refuse("behavior", "the supported are Isolated, Removed, Contiguous, MergedWithPrevious and MergedWithNext");
  Step step;
  step.pattern = {Pattern::load(fields)};
  step.behavior = behavior->second;
  step.invert = fields.boolean_or("invert", false);
  return step;
}

std::vector<PreTokenizer::Piece> PreTokenizer::pieces(const Step& step, std::string_view text) {
  std::vector<Piece> found;
  std::size_t at = 0;
  if (!step.pattern.empty())
    for (const auto& [begin, end] : step.pattern.front().find_all(text)) {
      if (at != begin) found.push_back({at, begin, step.invert});
      found.push_back({begin, end, !step.invert});
      at = end;
    }
  if (at != text.size()) found.push_back({at, text.size(), step.invert});
  return found;
}

// SplitDelimiterBehavior of the tokenizers library. In the result, `matched` marks pieces to be removed.
std::vector<PreTokenizer::Piece> PreTokenizer::arranged(Behavior behavior, std::vector<Piece> pieces) {
  if (behavior == Behavior::removed) return pieces;
  const bool backwards = behavior == Behavior::merged_with_next;
  if (backwards) std::ranges::reverse(pieces);
  std::vector<Piece> result;
  bool previous = false;
  for (const Piece& p : pieces) {
    const bool joins = !result.empty() && (behavior == Behavior::contiguous ? p.matched == previous
                                           : behavior == Behavior::isolated ? false
                                                                            : p.matched && !previous);
    if (joins) {
      result.back().begin = std::min(result.back().begin, p.begin);
      result.back().end = std::max(result.back().end, p.end);
    } else {
      result.push_back({p.begin, p.end, false});
    }
    previous = p.matched;
  }
  if (backwards) std::ranges::reverse(result);
  return result;
}

void PreTokenizer::put_marks(const Step& step, TextPlace place, std::vector<std::string>& words) {
  for (std::string& word : words) {
    if (step.marks_spaces) {
      std::string marked;
      for (const char c : word) c == ' ' ? void(marked += step.mark) : marked.push_back(c);
      word = std::move(marked);
    }
    const bool first = &word == &words.front();
    const bool wanted = (step.prefix == Prefix::always && !(first && place == TextPlace::inside)) ||
                        (step.prefix == Prefix::first && first && place == TextPlace::beginning);
    if (wanted && !word.starts_with(step.mark)) word.insert(0, step.mark);
  }
}

std::vector<std::string> PreTokenizer::split(std::string_view text, TextPlace place) const {
  std::vector<std::string> words;
  if (!text.empty()) words.emplace_back(text);
  for (const Step& step : steps_) {
    put_marks(step, place, words);
    if (step.pattern.empty()) continue;
    std::vector<std::string> next;
    for (const std::string& word : words)
      for (const Piece& p : arranged(step.behavior, pieces(step, word)))
        if (!p.matched && p.begin < p.end) next.push_back(word.substr(p.begin, p.end - p.begin));
    words = std::move(next);
  }
  return words;
}

}  // namespace foretoken

#include "framework/model/gguf/pre_tokenizer_names.h"

#include <algorithm>

#include "framework/text/known_names.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Tekken's with contractions, and three digits together.
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// DeepSeek-V3's, one after another: three digits together, runs of Han and of kana, then words.
constexpr const char* kDeepseek[] = {
    R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

json bytes(bool splits) { return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", splits}}; }

json sequence(json first, json second) {
  return {{"type", "Sequence"}, {"pretokenizers", json::array({std::move(first), std::move(second)})}};
}

json split(const char* pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}
json split_by(const char* pattern) { return sequence(split(pattern), bytes(false)); }
json split_by_deepseek() {
  json parts = json::array();
  for (const char* pattern : kDeepseek) parts.push_back(split(pattern));
  parts.push_back(bytes(false));
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

// GPT-2's rule, with every digit apart.
json digits() { return sequence({{"type", "Digits"}, {"individual_digits", true}}, bytes(true)); }

struct Known {
  const char* name;
  NamedPreTokenizer (*parts)();
};

NamedPreTokenizer gpt2() { return {nullptr, bytes(true), false, false}; }
NamedPreTokenizer llama3() { return {nullptr, split_by(kLlama3), true, true}; }
NamedPreTokenizer qwen2() { return {{{"type", "NFC"}}, split_by(kQwen2), false, false}; }
NamedPreTokenizer smollm() { return {nullptr, digits(), false, false}; }
NamedPreTokenizer tekken() { return {nullptr, split_by(kTekken), true, true}; }
NamedPreTokenizer dbrx() { return {nullptr, split_by(kLlama3), false, false}; }
NamedPreTokenizer deepseek3() { return {nullptr, split_by_deepseek(), false, false}; }
NamedPreTokenizer gpt4o() { return {nullptr, split_by(kGpt4o), false, false}; }

constexpr Known kKnown[] = {{"gpt-2", gpt2},  {"llama-bpe", llama3}, {"llama3", llama3},        {"llama-v3", llama3},
                            {"qwen2", qwen2}, {"smollm", smollm},    {"starcoder", smollm},     {"tekken", tekken},
                            {"dbrx", dbrx},   {"gpt-4o", gpt4o},     {"deepseek-v3", deepseek3}};

}  // namespace

const std::vector<std::string>& pre_tokenizer_names() {
  static const std::vector<std::string> names = names_of(kKnown);
  return names;
}

NamedPreTokenizer named_pre_tokenizer(const std::string& name) {
  return std::ranges::find(kKnown, name, [](const Known& k) { return std::string(k.name); })->parts();
}

}  // namespace foretoken

#include "framework/text/decoder.h"

#include <cstdio>

#include "framework/text/byte_alphabet.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr const char* kSupported =
    "the supported decoders are ByteLevel, Metaspace, and a Sequence of Replace, ByteFallback, Fuse and Strip in this "
    "order";

}  // namespace

std::string name_of_byte(int byte) {
  char name[8];
  std::snprintf(name, sizeof name, "<0x%02X>", byte & 0xff);
  return name;
}

int byte_of_name(std::string_view word) {
  if (word.size() != 6 || !word.starts_with("<0x") || word[5] != '>') return -1;
  int value = 0;
  for (const char c : word.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

Decoder Decoder::load(const nlohmann::json& spec, const std::string& where) {
  Decoder d;
  d.add(spec, where);
  return d;
}

void Decoder::add(const nlohmann::json& spec, const std::string& where) {
  const Fields fields(spec, where, "decoder");
  const std::string type = fields.string("type");
  if (type == "Sequence") {
    for (const auto& part : fields.array("decoders")) add(part, where);
  } else if (byte_level_ || !metaspace_.empty() || most_stripped_ > 0) {
    fields.refuse("type", std::string("nothing may follow there; ") + kSupported);
  } else if (type == "ByteLevel") {
    if (byte_fallback_ || fused_ || !replace_.empty())
      fields.refuse("type", std::string("must be the only decoder; ") + kSupported);
    byte_level_ = true;
  } else if (type == "Metaspace") {
    if (byte_fallback_ || fused_ || !replace_.empty())
      fields.refuse("type", std::string("must be the only decoder; ") + kSupported);
    const std::string mark = fields.string_or("replacement", "\u2581");
    if (mark.empty()) fields.refuse("replacement", "must be a character");
    replace_.emplace_back(Pattern::literal(mark, where), " ");
    if (fields.string_or("prepend_scheme", fields.boolean_or("add_prefix_space", true) ? "always" : "never") != "never")
      metaspace_ = mark;
  } else if (type == "Replace" && !fused_ && !byte_fallback_) {
    replace_.push_back(Pattern::replacement(fields));
  } else if (type == "ByteFallback" && !fused_) {
    byte_fallback_ = true;
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Strip" && fused_) {
    strip_ = fields.string("content");
    most_stripped_ = fields.integer_or("start", 0, 1 << 20, 0);
    if (strip_.empty() || fields.integer_or("stop", 0, 1 << 20, 0) != 0)
      fields.refuse("stop", "only a character at the beginning can be stripped");
  } else {
    fields.refuse("type", kSupported);
  }
}

std::string Decoder::inside(const std::string& word) const {
  if (byte_level_) return bytes_of_letters(word).value_or(word);
  std::string text = word;
  for (const auto& [pattern, with] : replace_) text = pattern.replace_all(text, with);
  const int byte = byte_fallback_ ? byte_of_name(text) : -1;
  return byte < 0 ? text : std::string(1, char(byte));
}

std::string Decoder::first(const std::string& word) const {
  return metaspace_.empty() ? inside(word) : replace_.front().first.replace_all(word, "");
}

std::string Decoder::begin(std::string text) const {
  for (int i = 0; i < most_stripped_ && text.starts_with(strip_); ++i) text.erase(0, strip_.size());
  return text;
}

}  // namespace foretoken

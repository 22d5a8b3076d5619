#include "framework/text/normalizer.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include <utf8proc.h>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

namespace {

std::string normal_form(std::string text, int form) {
  if (std::ranges::all_of(text, [](unsigned char c) { return c < 0x80; }))
    return text;  // ASCII is in every normal form
  utf8proc_uint8_t* mapped = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   utf8proc_ssize_t(text.size()), &mapped, utf8proc_option_t(form | UTF8PROC_STABLE));
  if (length < 0)
    throw Error(std::string("text of ") + std::to_string(text.size()) + " bytes could not be normalized (" +
                utf8proc_errmsg(length) + ")");
  text.assign(reinterpret_cast<const char*>(mapped), std::size_t(length));
  std::free(mapped);
  return text;
}

}  // namespace

Normalizer Normalizer::load(const nlohmann::json& spec, const std::string& where) {
  Normalizer n;
  if (!spec.is_null()) n.add(spec, where);
  return n;
}

void Normalizer::add(const nlohmann::json& spec, const std::string& where) {
  static const std::map<std::string, int> kForms = {{"NFC", UTF8PROC_COMPOSE},
                                                    {"NFD", UTF8PROC_DECOMPOSE},
                                                    {"NFKC", UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                                                    {"NFKD", UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  const Fields fields(spec, where, "normalizer");
  const std::string type = fields.string("type");
  if (const auto form = kForms.find(type); form != kForms.end()) {
    steps_.push_back({.kind = Kind::form, .form = form->second});
  } else if (type == "Prepend") {
    steps_.push_back({.kind = Kind::prepend, .content = fields.string("prepend")});
  } else if (type == "Replace") {
    auto [pattern, content] = Pattern::replacement(fields);
    steps_.push_back({.kind = Kind::replace, .pattern = {std::move(pattern)}, .content = std::move(content)});
  } else if (type == "Sequence") {
    for (const auto& part : fields.array("normalizers")) add(part, where);
  } else {
    fields.refuse("type", "the supported normalizers are NFC, NFD, NFKC, NFKD, Prepend, Replace and Sequence");
  }
}

std::string Normalizer::apply(std::string_view text, bool begins) const {
  std::string result(text);
  for (const Step& step : steps_) {
    if (step.kind == Kind::form) result = normal_form(std::move(result), step.form);
    if (step.kind == Kind::prepend && begins && !result.empty()) result.insert(0, step.content);
    if (step.kind == Kind::replace) result = step.pattern.front().replace_all(result, step.content);
  }
  return result;
}

}  // namespace foretoken

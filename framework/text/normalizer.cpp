#include "framework/text/normalizer.h"

#include <algorithm>
#include <cstdlib>

#include <utf8proc.h>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

Normalizer Normalizer::load(const nlohmann::json& spec, const std::string& where) {
  Normalizer n;
  if (spec.is_null()) return n;
  const Fields fields(spec, where, "normalizer");
  const std::string type = fields.string("type");
  if (type == "NFC")
    n.forms_ = {UTF8PROC_COMPOSE};
  else if (type == "NFD")
    n.forms_ = {UTF8PROC_DECOMPOSE};
  else if (type == "NFKC")
    n.forms_ = {UTF8PROC_COMPOSE | UTF8PROC_COMPAT};
  else if (type == "NFKD")
    n.forms_ = {UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
  else if (type == "Sequence") {
    for (const auto& part : fields.array("normalizers")) {
      const Normalizer inner = load(part, where);
      n.forms_.insert(n.forms_.end(), inner.forms_.begin(), inner.forms_.end());
    }
  } else {
    fields.refuse("type",
                  "the supported normalizers are NFC, NFD, NFKC, NFKD and Sequence (SentencePiece-style tokenizers are "
                  "not supported yet)");
  }
  return n;
}

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  if (std::ranges::all_of(result, [](unsigned char c) { return c < 0x80; }))
    return result;  // ASCII is in every normal form
  for (int form : forms_) {
    utf8proc_uint8_t* mapped = nullptr;
    const auto length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(result.data()), utf8proc_ssize_t(result.size()), &mapped,
                     utf8proc_option_t(form | UTF8PROC_STABLE));
    if (length < 0)
      throw Error(std::string("text of ") + std::to_string(result.size()) + " bytes could not be normalized (" +
                  utf8proc_errmsg(length) + ")");
    result.assign(reinterpret_cast<const char*>(mapped), std::size_t(length));
    std::free(mapped);
  }
  return result;
}

}  // namespace foretoken

// Jinja templates as chat models have them, rendered as Transformers does: jinja2's immutable sandbox with trim_blocks,
// lstrip_blocks, `break` and `continue`, the block `generation`, and the functions raise_exception, strftime_now,
// namespace, range, dict and joiner. What is not known here (include, import, extends, block, autoescape, some filters
// and methods) is refused by name. Otherwise than in Python, integers have 64 bits, what a filter like `map` gives is
// computed at once and not when it is used, and nothing is computed beforehand. This module must not know models or
// conversations.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "framework/text/date.h"

namespace foretoken::jinja {

// What a rendering depends on beside its variables, and the most that it may use: a template that needs more ends with
// an Error.
struct Context {
  Date date = {};                   // of strftime_now, at 00:00:00
  std::int64_t steps = 10'000'000;  // evaluations; long strings count for more
  std::int64_t bytes = 256 << 20;   // of all values made
  std::int64_t output = 16 << 20;   // bytes
  int depth = 500;                  // of nested evaluations
};

struct Node;

class Template {
 public:
  // `where` names the template's place in messages. A source that is no template, or uses what is not known here, is an
  // Error that names the line. Bytes that are no UTF-8 become U+FFFD.
  Template(std::string_view source, std::string where);

  // `variables` is an object. An Error where the template raises one (raise_exception), or does what Python refuses.
  std::string render(const nlohmann::ordered_json& variables, const Context& context = {}) const;

 private:
  std::string where_;
  std::shared_ptr<const Node> root_;
};

}  // namespace foretoken::jinja

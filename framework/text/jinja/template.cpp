#include "framework/text/jinja/template.h"

#include "framework/text/jinja/evaluator.h"
#include "framework/text/jinja/lexer.h"
#include "framework/text/jinja/parser.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken::jinja {
namespace {

using nlohmann::ordered_json;

Value value_of(Run& run, const ordered_json& json) {
  const Run::Deeper deeper(run);
  switch (json.type()) {
    case ordered_json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case ordered_json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case ordered_json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > std::uint64_t(INT64_MAX)) fail(json.dump() + " does not fit into 64 bits");
      return Value::integer(json.get<std::int64_t>());
    case ordered_json::value_t::number_float:
      return Value::real(json.get<double>());
    case ordered_json::value_t::string:
      return run.text(replace_broken_utf8(json.get_ref<const std::string&>()));
    case ordered_json::value_t::array: {
      Items items;
      for (const ordered_json& one : json) items.push_back(value_of(run, one));
      return run.list(std::move(items));
    }
    case ordered_json::value_t::object: {
      auto map = std::make_shared<Map>();
      for (const auto& [key, one] : json.items()) {
        const std::string name = replace_broken_utf8(key);
        map->set("s" + name, run.text(name), value_of(run, one));
      }
      return Value::of(Kind::dict, std::move(map));
    }
    default:
      return Value::none();
  }
}

}  // namespace

Template::Template(std::string_view source, std::string where)
    : where_(std::move(where)), root_(parse_template(source, where_)) {}

std::string Template::render(const ordered_json& variables, const Context& context) const {
  Run run(context);
  try {
    const auto scope = std::make_shared<Scope>();
    scope->names = globals(run);
    for (const auto& [name, value] : variables.items()) scope->names[name] = value_of(run, value);
    return Evaluator(run).render(*root_, scope);
  } catch (const Error& e) {
    fail_at(where_, run.line, e.what());
  }
}

}  // namespace foretoken::jinja

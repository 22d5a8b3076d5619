// Methods of lists and dicts, and how methods are bound.
#include <algorithm>

#include "framework/text/jinja/builtins.h"

namespace foretoken::jinja {
namespace {

Value index_in(Run& run, const Value& value, const Bound& given) {
  const Items& items = value.items();
  const std::int64_t size = std::int64_t(items.size());
  const auto place = [&](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size); };
  for (std::int64_t i = place(given.whole(1, 0)); i < place(given.whole(2, size)); ++i)
    if (items[std::size_t(i)].same(*given.at(0)) || equal(run, items[std::size_t(i)], *given.at(0)))
      return Value::integer(i);
  fail("a list or tuple has no such item");
}

Value count_in(Run& run, const Value& value, const Bound& given) {
  std::int64_t count = 0;
  for (const Value& item : value.items()) count += item.same(*given.at(0)) || equal(run, item, *given.at(0));
  return Value::integer(count);
}

Value get(Run& run, const Value& value, const Bound& given) {
  const Value* found = value.as<Map>().find(key_of(run, *given.at(0)));
  return found ? *found : given.value(1, Value::none());
}

template <View::Of of> Value view(Run& run, const Value& value, const Bound&) {
  auto made = std::make_shared<View>();
  run.take(std::int64_t(sizeof(View)));
  made->of = of, made->dict = value, made->depth = value.depth() + 1;
  return Value::of(Kind::view, std::move(made));
}

Value same(Run&, const Value& value, const Bound&) { return value; }

const std::vector<Builtin>& item_methods() {
  static const std::vector<Builtin> kMethods = {{"index", "/value /start /stop", 1, index_in},
                                                {"count", "/value", 1, count_in}};
  return kMethods;
}

const std::vector<Builtin>& dict_methods() {
  static const std::vector<Builtin> kMethods = {{"get", "/key /default", 1, get},
                                                {"keys", "", 0, view<View::Of::keys>},
                                                {"values", "", 0, view<View::Of::values>},
                                                {"items", "", 0, view<View::Of::items>},
                                                {"copy", "", 0, same}};
  return kMethods;
}

}  // namespace

std::optional<Value> method_of(Run& run, const Value& value, const std::string& name) {
  const std::vector<Builtin>* methods = nullptr;
  if (value.is(Kind::string)) methods = &text_methods();
  if (value.is_items()) methods = &item_methods();
  if (value.is(Kind::dict)) methods = &dict_methods();
  if (!methods) return std::nullopt;
  const auto it = std::ranges::find(*methods, std::string_view(name), &Builtin::name);
  if (it == methods->end()) return std::nullopt;
  return run.function(name, [value, method = &*it](Run& r, Arguments given) {
    r.step(value.is(Kind::string) ? std::int64_t(value.str().size() / 256) : 1);
    return method->apply(r, value,
                         Bound("the method '" + std::string(method->name) + "'", method->parameters, method->required,
                               std::move(given)));
  });
}

}  // namespace foretoken::jinja

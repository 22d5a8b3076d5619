// Attributes, items, slices and calls, as the sandbox of jinja2 allows them.
#include <algorithm>
#include <map>

#include "framework/text/jinja/builtins.h"
#include "framework/text/jinja/loop.h"
#include "framework/text/jinja/unicode.h"

namespace foretoken::jinja {
namespace {

using Names = std::vector<std::string_view>;

bool among(const Names& names, std::string_view name) { return std::ranges::find(names, name) != names.end(); }

// What changes a list or a dict, which the sandbox does not hand out.
bool is_forbidden(const Value& value, std::string_view name) {
  static const Names kOfLists = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"},
                     kOfDicts = {"clear", "pop", "popitem", "setdefault", "update"};
  return value.is(Kind::list) ? among(kOfLists, name) : value.is(Kind::dict) && among(kOfDicts, name);
}

// What Python's type has and this does not: to take it for undefined would be wrong without a word.
bool is_unknown(const Value& value, std::string_view name) {
  static const Names kOfTexts = {"casefold",    "encode",    "expandtabs", "format_map", "isidentifier", "isnumeric",
                                 "isprintable", "maketrans", "translate",  "unescape",   "striptags",    "escape"};
  static const Names kOfNumbers = {"real",      "imag",       "numerator",        "denominator", "conjugate",
                                   "bit_count", "bit_length", "as_integer_ratio", "is_integer",  "to_bytes",
                                   "hex",       "fromhex",    "from_bytes"};
  static const Names kOfDicts = {"fromkeys"}, kOfLists = {"copy"}, kOfViews = {"isdisjoint", "mapping"},
                     kOfRanges = {"start", "stop", "step", "index", "count"},
                     kOfGenerators = {"send", "throw", "close"};
  if (value.is_text()) return value.is(Kind::markup) || among(kOfTexts, name);
  if (value.is_number()) return among(kOfNumbers, name);
  switch (value.kind()) {
    case Kind::dict:
      return among(kOfDicts, name);
    case Kind::list:
      return among(kOfLists, name);
    case Kind::view:
      return among(kOfViews, name);
    case Kind::range:
      return among(kOfRanges, name);
    default:
      return value.is(Kind::generator) && among(kOfGenerators, name);
  }
}

Value missing(const Value& value, const std::string& name) {
  return Value::undefined("a value of type '" + type_of(value) + "' has no attribute '" + name + "'");
}

std::optional<Value> own_attribute(Run& run, const Value& value, const std::string& name) {
  if (value.is(Kind::space)) {
    const Value* found = value.as<Space>().attributes.find("s" + name);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (value.is(Kind::loop)) return loop_attribute(run, value, name);
  if (value.is(Kind::tuple) && value.as<Sequence>().group)
    if (name == "grouper" || name == "list") return value.items()[name == "list"];
  if (is_forbidden(value, name))
    return Value::undefined("the method '" + name + "' of a value of type '" + type_of(value) +
                            "' changes it, which templates may not do");
  if (std::optional<Value> method = method_of(run, value, name)) return method;
  if (is_unknown(value, name))
    fail("the attribute '" + name + "' of a value of type '" + type_of(value) + "' is not known here");
  if (name.starts_with("__") && name.ends_with("__"))
    return Value::undefined("access to the attribute '" + name + "' is not safe");
  return std::nullopt;
}

const Value* item_in(Run& run, const Value& value, const Value& key) {
  if (!value.is(Kind::dict) || key.is(Kind::list) || key.is(Kind::dict)) return nullptr;
  return value.as<Map>().find(key_of(run, key));
}

// The place of an index that may count from the end; -1: there is none.
std::int64_t place_of(std::int64_t index, std::int64_t length) {
  if (index < 0) index += length;
  return index >= 0 && index < length ? index : -1;
}

std::optional<Value> indexed(Run& run, const Value& value, std::int64_t index) {
  if (!value.is_text() && !value.is_items() && !value.is(Kind::range)) return std::nullopt;
  const std::int64_t at = place_of(index, length_of(run, value));
  if (at < 0) return std::nullopt;
  if (value.is_items()) return value.items()[std::size_t(at)];
  if (value.is(Kind::range)) return Value::integer(value.as<Range>().start + at * value.as<Range>().step);
  const std::string& text = value.str();
  std::size_t byte = 0;
  for (std::int64_t i = 0; i < at; ++i) byte += length_of_point(text, byte);
  return run.text(text.substr(byte, length_of_point(text, byte)));
}

std::int64_t bound_of(const Value& value, std::int64_t otherwise) {
  if (value.is(Kind::none)) return otherwise;
  if (value.is(Kind::undefined)) fail(value.reason());
  if (!value.is_whole()) fail("the bounds of a slice are integers or None, not '" + type_of(value) + "'");
  return value.whole();
}

// The places that start:stop:step names of `length` ones, as Python's slice.indices().
std::vector<std::int64_t> places_of(Run& run, std::int64_t length, const Value& from, const Value& to,
                                    const Value& by) {
  const std::int64_t step = std::clamp<std::int64_t>(bound_of(by, 1), -INT32_MAX, INT32_MAX);
  if (step == 0) fail("the step of a slice is zero");
  const std::int64_t lower = step < 0 ? -1 : 0, upper = step < 0 ? length - 1 : length;
  const auto limited = [&](std::int64_t at) {
    if (at < 0) at = at < -length ? lower : at + length;
    return std::clamp(at, lower, upper);
  };
  const std::int64_t start = from.is(Kind::none) ? (step < 0 ? upper : lower) : limited(bound_of(from, 0));
  const std::int64_t stop = to.is(Kind::none) ? (step < 0 ? lower : upper) : limited(bound_of(to, 0));
  std::vector<std::int64_t> places;
  for (std::int64_t at = start; step < 0 ? at > stop : at < stop; at += step) places.push_back(at);
  run.step(std::int64_t(places.size() / 16));
  run.take(std::int64_t(places.size() * sizeof(std::int64_t)));
  return places;
}

}  // namespace

Value attribute_of(Run& run, const Value& value, const std::string& name) {
  if (value.is(Kind::undefined)) fail(value.reason());
  if (value.is(Kind::function)) fail("attributes of functions ('" + name + "') are not known here");
  if (std::optional<Value> own = own_attribute(run, value, name)) return *own;
  if (const Value* item = item_in(run, value, run.text(name))) return *item;
  return missing(value, name);
}

Value item_of(Run& run, const Value& value, const Value& key) {
  if (value.is(Kind::undefined)) fail(value.reason());
  if (const Value* item = item_in(run, value, key)) return *item;
  if (key.is_whole())
    if (std::optional<Value> item = indexed(run, value, key.whole())) return *item;
  if (!key.is(Kind::string)) return Value::undefined("a value of type '" + type_of(value) + "' has no such item");
  if (value.is(Kind::function)) fail("attributes of functions ('" + key.str() + "') are not known here");
  if (std::optional<Value> own = own_attribute(run, value, key.str())) return *own;
  return missing(value, key.str());
}

Value cut_of(Run& run, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is(Kind::undefined)) fail(value.reason());
  if (!value.is(Kind::string) && !value.is_items() && !value.is(Kind::range))
    fail("a value of type '" + type_of(value) + "' has no slices");
  const auto places = places_of(run, length_of(run, value), start, stop, step);
  if (value.is(Kind::string)) {
    const std::u32string points = points_of(value.str());
    run.step(std::int64_t(points.size() / 16));
    std::u32string cut;
    for (const std::int64_t at : places) cut += points[std::size_t(at)];
    return run.text(utf8_of(cut));
  }
  if (value.is(Kind::range)) fail("slices of a range are not known here; make it a list first");
  Items items;
  for (const std::int64_t at : places) items.push_back(value.items()[std::size_t(at)]);
  return run.sequence(value.kind(), std::move(items));
}

Value called(Run& run, const Value& function, Arguments arguments) {
  const Run::Deeper deeper(run);
  run.step();
  if (function.is(Kind::undefined)) fail(function.reason());
  if (function.is(Kind::loop)) return call_loop(run, function, std::move(arguments));
  if (!function.is(Kind::function)) fail("a value of type '" + type_of(function) + "' cannot be called");
  return function.as<Function>().call(run, std::move(arguments));
}

}  // namespace foretoken::jinja

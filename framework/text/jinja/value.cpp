#include "framework/text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/text/jinja/run.h"
#include "framework/text/jinja/unicode.h"
#include "kernels/error.h"

namespace foretoken::jinja {

void fail(const std::string& message) { throw Error(message); }

Value Value::undefined(std::string why) { return text(std::move(why), Kind::undefined); }
Value Value::none() { return of(Kind::none, nullptr); }
Value Value::boolean(bool b) {
  Value v = of(Kind::boolean, nullptr);
  v.whole_ = b;
  return v;
}
Value Value::integer(std::int64_t i) {
  Value v = of(Kind::integer, nullptr);
  v.whole_ = i;
  return v;
}
Value Value::real(double d) {
  Value v = of(Kind::real, nullptr);
  v.real_ = d;
  return v;
}
Value Value::text(std::string s, Kind kind) {
  auto body = std::make_shared<Text>();
  body->text = std::move(s);
  return of(kind, std::move(body));
}
Value Value::of(Kind kind, std::shared_ptr<const Body> body) {
  if (body && body->depth > kDeepest)
    fail("a value holds more than " + std::to_string(kDeepest) + " values inside of each other");
  Value v;
  v.kind_ = kind;
  v.body_ = std::move(body);
  return v;
}
Value Value::sequence(Kind kind, Items items) {
  auto body = std::make_shared<Sequence>();
  for (const Value& item : items) body->depth = std::max(body->depth, 1 + item.depth());
  body->items = std::move(items);
  return of(kind, std::move(body));
}

const std::string& Value::str() const { return as<Text>().text; }
const Items& Value::items() const { return as<Sequence>().items; }
const std::string& Value::reason() const {
  static const std::string kNone = "a value is undefined";
  return body_ ? as<Text>().text : kNone;
}

bool Value::same(const Value& other) const {
  if (kind_ != other.kind_ || body_ != other.body_) return false;
  if (kind_ == Kind::real) return real_ == other.real_;
  return whole_ == other.whole_;
}

const Value* Map::find(const std::string& key) const {
  const auto it = places.find(key);
  return it == places.end() ? nullptr : &entries[it->second].second;
}

void Map::set(std::string key, Value name, Value value) {
  depth = std::max({depth, 1 + name.depth(), 1 + value.depth()});
  const auto [it, fresh] = places.emplace(std::move(key), entries.size());
  if (fresh)
    entries.emplace_back(std::move(name), std::move(value));
  else
    entries[it->second].second = std::move(value);
}

std::string type_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::markup:
      return "Markup";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::generator:
      return "generator";
    case Kind::space:
      return "Namespace";
    case Kind::function:
      return "function";
    case Kind::loop:
      return "LoopContext";
    case Kind::view:
      break;
  }
  const View::Of of = value.as<View>().of;
  return of == View::Of::keys ? "dict_keys" : of == View::Of::values ? "dict_values" : "dict_items";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.whole() != 0;
    case Kind::real:
      return value.number() != 0;
    case Kind::string:
    case Kind::markup:
      return !value.str().empty();
    case Kind::list:
    case Kind::tuple:
      return !value.items().empty();
    case Kind::dict:
      return !value.as<Map>().entries.empty();
    case Kind::view:
      return truth(value.as<View>().dict);
    case Kind::range:
      return value.as<Range>().count > 0;
    default:
      return true;
  }
}

std::string key_of(Run& run, const Value& value) {
  run.step();
  switch (value.kind()) {
    case Kind::none:
      return "none";
    case Kind::boolean:
    case Kind::integer:
      return "n" + std::to_string(value.whole());
    case Kind::real:
      if (value.number() == std::floor(value.number()) && std::fabs(value.number()) < 9e18)
        return "n" + std::to_string(std::int64_t(value.number()));
      return "r" + repr_of_real(value.number());
    case Kind::string:
    case Kind::markup:
      run.step(std::int64_t(value.str().size() / 64));
      return "s" + value.str();
    case Kind::tuple: {
      std::string key = "(";
      for (const Value& item : value.items()) {
        const std::string one = key_of(run, item);
        key += std::to_string(one.size()) + ":" + one;
        run.take(std::int64_t(one.size()));
      }
      return key;
    }
    case Kind::list:
    case Kind::dict:
      fail("unhashable type: '" + type_of(value) + "'");
    default:
      break;
  }
  if (value.is(Kind::undefined)) return "undefined";
  return "b" + std::to_string(reinterpret_cast<std::uintptr_t>(value.body()));
}

namespace {

bool equal_items(Run& run, const Items& a, const Items& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!a[i].same(b[i]) && !equal(run, a[i], b[i])) return false;
  return true;
}

bool equal_maps(Run& run, const Map& a, const Map& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [name, value] : a.entries) {
    const Value* other = b.find(key_of(run, name));
    if (!other || (!value.same(*other) && !equal(run, value, *other))) return false;
  }
  return true;
}

}  // namespace

bool equal(Run& run, const Value& a, const Value& b) {
  const Run::Deeper deeper(run);
  run.step();
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
    const auto exact = [](const Value& v) { return v.is_whole() ? static_cast<long double>(v.whole()) : v.number(); };
    return exact(a) == exact(b);
  }
  if (a.is_text() && b.is_text()) {
    run.step(std::int64_t(std::min(a.str().size(), b.str().size()) / 256));
    return a.str() == b.str();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::list:
    case Kind::tuple:
      return equal_items(run, a.items(), b.items());
    case Kind::dict:
      return equal_maps(run, a.as<Map>(), b.as<Map>());
    case Kind::range: {
      const auto &x = a.as<Range>(), &y = b.as<Range>();
      return x.count == y.count && (x.count == 0 || (x.start == y.start && (x.count == 1 || x.step == y.step)));
    }
    default:
      return a.same(b);
  }
}

std::int64_t length_of(Run& run, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
    case Kind::markup:
      run.step(std::int64_t(value.str().size() / 64));
      return count_points(value.str());
    case Kind::list:
    case Kind::tuple:
      return std::int64_t(value.items().size());
    case Kind::dict:
      return std::int64_t(value.as<Map>().entries.size());
    case Kind::view:
      return length_of(run, value.as<View>().dict);
    case Kind::range:
      return value.as<Range>().count;
    default:
      fail("a value of type '" + type_of(value) + "' has no length");
  }
}

bool iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
    case Kind::space:
    case Kind::function:
      return false;
    default:
      return true;
  }
}

Iterator::Iterator(Run& run, Value of) : run_(&run), of_(std::move(of)) {
  if (of_.is(Kind::loop)) fail("the variable 'loop' cannot be iterated here");
  if (!iterable(of_)) fail("a value of type '" + type_of(of_) + "' cannot be iterated");
}

bool Iterator::next(Value& value) {
  run_->step();
  switch (of_.kind()) {
    case Kind::undefined:
      return false;
    case Kind::string:
    case Kind::markup: {
      const std::string& all = of_.str();
      if (at_ >= all.size()) return false;
      const std::size_t length = length_of_point(all, at_);
      value = run_->text(all.substr(at_, length));
      at_ += length;
      return true;
    }
    case Kind::range: {
      const Range& range = of_.as<Range>();
      if (std::int64_t(at_) >= range.count) return false;
      value = Value::integer(range.start + std::int64_t(at_++) * range.step);
      return true;
    }
    case Kind::dict:
    case Kind::view: {
      const View::Of of = of_.is(Kind::dict) ? View::Of::keys : of_.as<View>().of;
      const auto& entries = (of_.is(Kind::dict) ? of_ : of_.as<View>().dict).as<Map>().entries;
      if (at_ >= entries.size()) return false;
      const auto& [name, item] = entries[at_++];
      value = of == View::Of::keys ? name : of == View::Of::values ? item : run_->tuple({name, item});
      return true;
    }
    default:
      break;
  }
  const Sequence& sequence = of_.as<Sequence>();
  std::size_t& at = of_.is(Kind::generator) ? sequence.next : at_;
  if (at >= sequence.items.size()) return false;
  value = sequence.items[at++];
  return true;
}

Items items_of(Run& run, const Value& value) {
  Items items;
  Iterator iterator(run, value);
  for (Value item; iterator.next(item);) {
    run.take(std::int64_t(sizeof(Value)));
    items.push_back(item);
  }
  return items;
}

}  // namespace foretoken::jinja

// Filters that choose or change items by a filter, a test or an attribute, and the tests.
#include <algorithm>
#include <cmath>

#include "framework/text/jinja/builtins.h"
#include "framework/text/jinja/item_key.h"
#include "framework/text/jinja/unicode.h"
#include "framework/text/known_names.h"

namespace foretoken::jinja {
namespace {

Value otherwise(Run& run, const Value& value, const Bound& given) {
  const bool replaces = value.is(Kind::undefined) || (given.flag(1, false) && !truth(value));
  return replaces ? given.value(0, run.text("")) : value;
}

Arguments without_first(Arguments arguments, std::size_t count) {
  arguments.positional.erase(arguments.positional.begin(), arguments.positional.begin() + std::ptrdiff_t(count));
  return arguments;
}

std::string name_in(const Bound& given, std::size_t at) {
  const Value& name = given.all().positional[at];
  if (!name.is(Kind::string)) fail(given.callee() + " needs the name of a filter or test as a text");
  return name.str();
}

Value map(Run& run, const Value& value, const Bound& given) {
  if (!truth(value)) return run.sequence(Kind::generator, {});
  const Arguments& all = given.all();
  if (all.positional.empty()) {
    const Bound named(given.callee(), "attribute default", 1, all);
    return run.sequence(Kind::generator, ItemKey(run, named.at(0), true, named.at(1)).keys(items_of(run, value)));
  }
  const std::string name = name_in(given, 0);
  const Arguments rest = without_first(all, 1);
  Items items;
  for (const Value& item : items_of(run, value)) items.push_back(filtered(run, name, item, rest));
  return run.sequence(Kind::generator, std::move(items));
}

// `keeps`: those of which the test holds; by_attribute: it is asked about an attribute.
template <bool keeps, bool by_attribute> Value choose(Run& run, const Value& value, const Bound& given) {
  const Arguments& all = given.all();
  const std::size_t off = by_attribute ? 1 : 0;
  if (!truth(value)) return run.sequence(Kind::generator, {});
  if (all.positional.size() < off) fail(given.callee() + " needs the name of an attribute");
  const ItemKey key(run, by_attribute ? &all.positional[0] : nullptr, true);
  const bool has_test = all.positional.size() > off;
  const std::string name = has_test ? name_in(given, off) : "";
  const Arguments rest = has_test ? without_first(all, off + 1) : Arguments();
  Items items;
  for (const Value& item : items_of(run, value)) {
    const Value one = key.of(item);
    if ((has_test ? tested(run, name, one, rest) : truth(one)) == keeps) items.push_back(item);
  }
  return run.sequence(Kind::generator, std::move(items));
}

bool rest_is(Run& run, const Value& value, const Value& divisor, std::int64_t rest) {
  return equal(run, operated(run, "%", value, divisor), Value::integer(rest));
}

bool is_sequence(const Value& value) {
  return value.is_text() || value.is_items() || value.is(Kind::dict) || value.is(Kind::range) ||
         value.is(Kind::undefined);
}

bool has_method(Run& run, const Value& value, const char* name) {
  return truth(called(run, *method_of(run, run.text(str_of(run, value)), name), {}));
}

using TestFunction = bool (*)(Run& run, const Value& value, const Value& operand);
struct Test {
  const char* name;
  int operands;
  TestFunction holds;
};

template <Kind kind> bool kind_is(Run&, const Value& value, const Value&) { return value.is(kind); }
template <bool truth> bool boolean_is(Run&, const Value& value, const Value&) {
  return value.is(Kind::boolean) && (value.whole() != 0) == truth;
}
bool divides(Run& run, const Value& value, const Value& by) { return rest_is(run, value, by, 0); }

const std::vector<Test>& tests() {
  static const std::vector<Test> kTests = {
      {"boolean", 0, kind_is<Kind::boolean>},
      {"callable", 0,
       [](Run&, const Value& v, const Value&) {
         return v.is(Kind::function) || v.is(Kind::loop) || v.is(Kind::undefined);
       }},
      {"defined", 0, [](Run&, const Value& v, const Value&) { return !v.is(Kind::undefined); }},
      {"divisibleby", 1, divides},
      {"escaped", 0, kind_is<Kind::markup>},
      {"even", 0, [](Run& r, const Value& v, const Value&) { return rest_is(r, v, Value::integer(2), 0); }},
      {"false", 0, boolean_is<false>},
      {"filter", 0, [](Run& r, const Value& v, const Value&) { return is_filter(str_of(r, v)); }},
      {"float", 0, kind_is<Kind::real>},
      {"integer", 0, kind_is<Kind::integer>},
      {"iterable", 0, [](Run&, const Value& v, const Value&) { return iterable(v); }},
      {"lower", 0, [](Run& r, const Value& v, const Value&) { return has_method(r, v, "islower"); }},
      {"mapping", 0, kind_is<Kind::dict>},
      {"none", 0, kind_is<Kind::none>},
      {"number", 0, [](Run&, const Value& v, const Value&) { return v.is_number(); }},
      {"odd", 0, [](Run& r, const Value& v, const Value&) { return rest_is(r, v, Value::integer(2), 1); }},
      {"sameas", 1, [](Run&, const Value& v, const Value& other) { return v.same(other); }},
      {"sequence", 0, [](Run&, const Value& v, const Value&) { return is_sequence(v); }},
      {"string", 0, [](Run&, const Value& v, const Value&) { return v.is_text(); }},
      {"test", 0, [](Run& r, const Value& v, const Value&) { return is_test(str_of(r, v)); }},
      {"true", 0, boolean_is<true>},
      {"undefined", 0, kind_is<Kind::undefined>},
      {"upper", 0, [](Run& r, const Value& v, const Value&) { return has_method(r, v, "isupper"); }}};
  return kTests;
}

// Tests that are operators.
std::string sign_of(const std::string& name) {
  static const std::unordered_map<std::string, std::string> kSigns = {
      {"==", "=="}, {"eq", "=="}, {"equalto", "=="}, {"!=", "!="},     {"ne", "!="}, {">", ">"},
      {"gt", ">"},  {"ge", ">="}, {">=", ">="},      {"<", "<"},       {"lt", "<"},  {"greaterthan", ">"},
      {"<=", "<="}, {"le", "<="}, {"in", "in"},      {"lessthan", "<"}};
  const auto it = kSigns.find(name);
  return it == kSigns.end() ? "" : it->second;
}

const Test* test_of(const std::string& name) {
  const auto it = std::ranges::find(tests(), std::string_view(name), &Test::name);
  return it == tests().end() ? nullptr : &*it;
}

}  // namespace

bool is_test(const std::string& name) { return test_of(name) || !sign_of(name).empty(); }

bool tested(Run& run, const std::string& name, const Value& value, Arguments arguments) {
  const Run::Deeper deeper(run);
  run.step();
  const std::string callee = "the test '" + name + "'", sign = sign_of(name);
  if (!sign.empty()) return compared(run, sign, value, *Bound(callee, "other", 1, std::move(arguments)).at(0));
  const Test* test = test_of(name);
  if (!test) {
    std::vector<std::string> known = names_of(tests());
    unknown_name("test", name, known);
  }
  const char* operand = name == "divisibleby" ? "num" : name == "sameas" ? "other" : "";
  const Bound given(callee, operand, test->operands, std::move(arguments));
  return test->holds(run, value, given.value(0, Value()));
}

const std::vector<Builtin>& choice_filters() {
  static const std::vector<Builtin> kFilters = {{"d", "default_value boolean", 0, otherwise},
                                                {"default", "default_value boolean", 0, otherwise},
                                                {"map", "*", 0, map},
                                                {"reject", "*", 0, choose<false, false>},
                                                {"rejectattr", "*", 0, choose<false, true>},
                                                {"select", "*", 0, choose<true, false>},
                                                {"selectattr", "*", 0, choose<true, true>}};
  return kFilters;
}

}  // namespace foretoken::jinja

// The functions that every template has, and how filters and tests are found.
#include <algorithm>
#include <iterator>

#include "framework/text/jinja/builtins.h"
#include "framework/text/known_names.h"

namespace foretoken::jinja {
namespace {

constexpr std::int64_t kLongestRange = 100'000;  // of the sandbox of jinja2

Value make_range(Run& run, Arguments arguments) {
  const Bound given("range", "/start /stop /step", 1, std::move(arguments));
  auto range = std::make_shared<Range>();
  range->start = given.at(1) ? given.whole(0, 0) : 0;
  range->stop = given.at(1) ? given.whole(1, 0) : given.whole(0, 0);
  range->step = given.whole(2, 1);
  if (range->step == 0) fail("the step of a range is zero");
  const bool up = range->step > 0, some = up ? range->stop > range->start : range->stop < range->start;
  const auto size = [](std::int64_t from, std::int64_t to) { return std::uint64_t(to) - std::uint64_t(from); };
  const std::uint64_t span = up ? size(range->start, range->stop) : size(range->stop, range->start),
                      step = up ? std::uint64_t(range->step) : 0 - std::uint64_t(range->step);
  range->count = some ? std::int64_t(std::min<std::uint64_t>((span - 1) / step + 1, kLongestRange + 1)) : 0;
  if (range->count > kLongestRange)
    fail("a range has more than " + std::to_string(kLongestRange) + " numbers, the most that templates may ask for");
  run.take(std::int64_t(sizeof(Range)));
  return Value::of(Kind::range, std::move(range));
}

Map map_of(Run& run, const std::string& callee, const Arguments& arguments) {
  Map map;
  if (arguments.positional.size() > 1) fail(callee + " takes one value and names");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is(Kind::dict)) {
      map = from.as<Map>();
    } else {
      for (const Value& pair : items_of(run, from)) {
        const Items two = items_of(run, pair);
        if (two.size() != 2) fail(callee + " needs a dict or pairs");
        map.set(key_of(run, two[0]), two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) map.set("s" + name, run.text(name), value);
  run.take(std::int64_t(map.entries.size() * 2 * sizeof(Value)));
  return map;
}

Value make_space(Run& run, const Arguments& arguments) {
  Map map = map_of(run, "namespace", arguments);
  for (const auto& [name, value] : map.entries)
    if (name.is_text() && name.str().starts_with('_'))
      fail("the attribute '" + name.str() + "' of a namespace begins with '_', which templates may not use");
  return run.space(std::move(map));
}

Value make_dict(Run& run, const Arguments& arguments) {
  return Value::of(Kind::dict, std::make_shared<Map>(map_of(run, "dict", arguments)));
}

Value make_joiner(Run& run, Arguments arguments) {
  const Bound given("joiner", "sep", 0, std::move(arguments));
  return run.function(
      "joiner", [mark = given.value(0, run.text(", ")), used = std::make_shared<bool>()](Run& r, const Arguments&) {
        return std::exchange(*used, true) ? mark : r.text("");
      });
}

Value raise(Run& run, Arguments arguments) {
  const Bound given("raise_exception", "message", 1, std::move(arguments));
  fail("the template refuses this: " + str_of(run, *given.at(0)));
}

Value now(Run& run, Arguments arguments) {
  const Bound given("strftime_now", "format", 1, std::move(arguments));
  return run.text(run.context().date.format(given.text(0, "")));
}

// Of jinja2, and not here.
constexpr std::string_view kFilters[] = {"attr",   "filesizeformat", "forceescape", "pprint", "random",
                                         "urlize", "striptags",      "wordwrap",    "xmlattr"};

const Builtin* find_in(const std::vector<Builtin>& table, const std::string& name) {
  const auto it = std::ranges::find(table, std::string_view(name), &Builtin::name);
  return it == table.end() ? nullptr : &*it;
}

const Builtin* filter_of(const std::string& name) {
  for (const auto* table : {&text_filters(), &item_filters(), &number_filters(), &choice_filters()})
    if (const Builtin* found = find_in(*table, name)) return found;
  return nullptr;
}

}  // namespace

std::unordered_map<std::string, Value> globals(Run& run) {
  std::unordered_map<std::string, Value> names;
  const std::pair<const char*, Value (*)(Run&, Arguments)> functions[] = {
      {"range", make_range},
      {"namespace", [](Run& r, Arguments given) { return make_space(r, given); }},
      {"dict", [](Run& r, Arguments given) { return make_dict(r, given); }},
      {"joiner", make_joiner},
      {"raise_exception", raise},
      {"strftime_now", now},
      {"cycler", [](Run&, Arguments) -> Value { fail("the function 'cycler' is not known here"); }},
      {"lipsum", [](Run&, Arguments) -> Value { fail("the function 'lipsum' is not known here"); }}};
  for (const auto& [name, call] : functions) names[name] = run.function(name, call);
  return names;
}

bool is_filter(const std::string& name) {
  return filter_of(name) || std::ranges::find(kFilters, name) != std::end(kFilters);
}

Value filtered(Run& run, const std::string& name, const Value& value, Arguments arguments) {
  const Run::Deeper deeper(run);
  const Builtin* filter = filter_of(name);
  if (!filter) {
    std::vector<std::string> known;
    for (const auto* table : {&text_filters(), &item_filters(), &number_filters(), &choice_filters()})
      for (const Builtin& one : *table) known.push_back(one.name);
    std::ranges::sort(known);
    unknown_name("filter", name, known);
  }
  run.step(1 + (value.is_text() ? std::int64_t(value.str().size() / 64) : 0));
  return filter->apply(run, value,
                       Bound("the filter '" + name + "'", filter->parameters, filter->required, std::move(arguments)));
}

}  // namespace foretoken::jinja

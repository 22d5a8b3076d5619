#include "framework/text/jinja/loop.h"

#include <algorithm>

#include "framework/text/jinja/run.h"

namespace foretoken::jinja {
namespace {

Loop& loop_of(const Value& value) { return const_cast<Loop&>(value.as<Loop>()); }

std::int64_t length_of_loop(Run& run, Loop& loop) {
  if (loop.counted) return *loop.counted;
  Items rest;
  for (Value item; loop.take(item);) {
    run.take(std::int64_t(sizeof(Value)));
    rest.push_back(item);
  }
  loop.counted = loop.index0 + 1 + std::int64_t(rest.size());
  std::ranges::reverse(rest);
  loop.ahead = std::move(rest);
  return *loop.counted;
}

Value cycle(const Loop& loop, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("loop.cycle() needs values");
  return arguments.positional[std::size_t(loop.index0) % arguments.positional.size()];
}

Value changed(Run& run, Loop& loop, const Items& values) {
  const bool same =
      loop.changed && loop.changed->size() == values.size() &&
      std::ranges::equal(*loop.changed, values, [&](const Value& a, const Value& b) { return equal(run, a, b); });
  if (!same) loop.changed = values;
  return Value::boolean(!same);
}

}  // namespace

bool Loop::take(Value& value) {
  if (ahead.empty()) return source(value);
  value = ahead.back();
  ahead.pop_back();
  return true;
}

bool Loop::peek() {
  Value value;
  if (!ahead.empty()) return true;
  if (counted && index0 + 1 >= *counted) return false;
  if (!source(value)) return false;
  ahead.push_back(std::move(value));
  return true;
}

std::optional<Value> loop_attribute(Run& run, const Value& value, const std::string& name) {
  Loop& loop = loop_of(value);
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!loop.peek());
  if (name == "length") return Value::integer(length_of_loop(run, loop));
  if (name == "revindex") return Value::integer(length_of_loop(run, loop) - loop.index0);
  if (name == "revindex0") return Value::integer(length_of_loop(run, loop) - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? Value::undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return loop.peek() ? loop.ahead.back() : Value::undefined("there is no next item");
  if (name == "cycle")
    return run.function(name, [value](Run&, const Arguments& given) { return cycle(loop_of(value), given); });
  if (name == "changed")
    return run.function(
        name, [value](Run& r, const Arguments& given) { return changed(r, loop_of(value), given.positional); });
  return std::nullopt;
}

Value call_loop(Run& run, const Value& value, Arguments arguments) {
  const Loop& loop = value.as<Loop>();
  if (!loop.again) fail("a loop that calls itself needs the word 'recursive'");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) fail("a loop is called with one argument");
  return loop.again(run, arguments.positional[0]);
}

}  // namespace foretoken::jinja

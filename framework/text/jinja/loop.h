// The variable `loop`. This module must not know how bodies are rendered.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "framework/text/jinja/value.h"

namespace foretoken::jinja {

// Looks at the next item only where it is asked for (`last`, `nextitem`, `length`): a condition of the loop may depend
// on what the body does.
struct Loop : Body {
  std::function<bool(Value&)> source;
  std::optional<std::int64_t> counted;  // where the length is known without looking
  std::vector<Value> ahead;             // seen, not yet taken, in reverse
  std::int64_t index0 = -1;
  int depth0 = 0;
  Value before, current;
  std::optional<Items> changed;                    // of changed(): the last values
  std::function<Value(Run&, const Value&)> again;  // of a recursive loop

  bool take(Value& value);
  bool peek();
};

std::optional<Value> loop_attribute(Run& run, const Value& loop, const std::string& name);
Value call_loop(Run& run, const Value& loop, Arguments arguments);

}  // namespace foretoken::jinja

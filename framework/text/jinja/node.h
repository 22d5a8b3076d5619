// The tree of a template. This module must not know how it is rendered.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/text/jinja/value.h"

namespace foretoken::jinja {

enum class Op {
  // Expressions. `parts` are operands.
  constant,
  name,
  tuple,
  list,
  dict,       // name, value, name, value, ...
  attribute,  // parts[0].name
  item,       // parts[0][parts[1]]
  cut,        // parts[0][parts[1]:parts[2]:parts[3]], each of these null where it is not written
  call,       // parts[0](the others, named)
  filter,     // parts[0] | name(the others, named); parts[0] is null in a block
  test,       // parts[0] is name(the others, named)
  negative,
  positive,
  negation,
  conjunction,
  disjunction,
  binary,      // `name` is the operator
  comparison,  // parts[0] names[0] parts[1] names[1] parts[2] ...
  concatenation,
  choice,  // parts[0] if parts[1] else parts[2]; parts[2] null where it is not written
  // Statements. `body` and `otherwise` are statements.
  block,
  data,              // `name` is the text
  output,            // parts, one after another
  set,               // parts[0] = parts[1]
  set_block,         // parts[0] = body, through the filter parts[1] where there is one
  attribute_target,  // of `set`: namespace parts[0], attribute `name`
  loop,              // parts: target, iterated, condition or null
  condition,         // parts[0], body, otherwise
  macro,             // `names` are parameters, parts their default values or null
  call_block,        // parts[0] is the call, parts[1] the macro that it gets as `caller`
  filter_block,
  with,     // target, value, target, value, ...
  stop,     // break
  proceed,  // continue
};

struct Node {
  Op op;
  int line = 0;
  int depth = 1;  // of nodes inside of nodes
  std::string name;
  Value value;
  std::vector<std::unique_ptr<Node>> parts;
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::unique_ptr<Node>>> named;  // arguments
  std::unique_ptr<Node> star, stars;                                 // *arguments, **arguments
  std::vector<std::unique_ptr<Node>> body, otherwise;
  // A macro that names these takes more arguments than it lists; a loop may call itself.
  bool takes_positional = false, takes_named = false, takes_caller = false, recursive = false;
};

using NodePtr = std::unique_ptr<Node>;

}  // namespace foretoken::jinja

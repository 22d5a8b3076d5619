#include "framework/text/jinja/evaluator.h"

namespace foretoken::jinja {

Value Evaluator::named(const std::string& name, const Place& scope) const {
  for (const Scope* at = scope.get(); at; at = at->parent.get())
    if (const auto it = at->names.find(name); it != at->names.end()) return it->second;
  return Value::undefined("'" + name + "' is undefined");
}

Value Evaluator::value(const Node& node, const Place& scope) {
  switch (node.op) {
    case Op::constant:
      return node.value;
    case Op::name:
      run_.step();
      return named(node.name, scope);
    default:
      break;
  }
  const Run::Deeper deeper(run_);
  run_.step();
  run_.line = node.line;
  return operation(node, scope);
}

// What stands behind an operand: attributes, items, calls, filters and tests.
Value Evaluator::access(const Node& node, const Place& scope) {
  if (node.op == Op::cut) return cut(node, scope);
  const Value of = node.parts[0] ? value(*node.parts[0], scope) : *input_;
  if (node.op == Op::item) {
    const Value key = value(*node.parts[1], scope);
    run_.line = node.line;
    return item_of(run_, of, key);
  }
  if (node.op == Op::attribute) {
    run_.line = node.line;
    return attribute_of(run_, of, node.name);
  }
  Arguments given = arguments(node, scope);
  run_.line = node.line;
  if (node.op == Op::call) return called(run_, of, std::move(given));
  if (node.op == Op::filter) return filtered(run_, node.name, of, std::move(given));
  return Value::boolean(tested(run_, node.name, of, std::move(given)));
}

Value Evaluator::operation(const Node& node, const Place& scope) {
  const auto part = [&](std::size_t i) {
    Value made = value(*node.parts[i], scope);
    run_.line = node.line;
    return made;
  };
  switch (node.op) {
    case Op::tuple:
      return run_.tuple(values(node, scope, 0));
    case Op::list:
      return run_.list(values(node, scope, 0));
    case Op::dict:
      return dict(node, scope);
    case Op::negative:
      return negative(part(0));
    case Op::positive: {
      const Value of = part(0);
      if (!of.is_number()) negative(of);  // which refuses it
      return of.is(Kind::real) ? of : Value::integer(of.whole());
    }
    case Op::negation:
      return Value::boolean(!truth(part(0)));
    case Op::conjunction: {
      const Value left = part(0);
      return truth(left) ? part(1) : left;
    }
    case Op::disjunction: {
      const Value left = part(0);
      return truth(left) ? left : part(1);
    }
    case Op::binary: {
      const Value left = part(0);
      return operated(run_, node.name, left, part(1));
    }
    case Op::comparison:
      return compared_chain(node, scope);
    case Op::concatenation:
      return concatenated(node, scope);
    case Op::choice:
      if (truth(part(1))) return part(0);
      return node.parts[2] ? part(2)
                           : Value::undefined("an 'if' without 'else' gives no value, since it does not hold");
    default:
      return access(node, scope);
  }
}

Items Evaluator::values(const Node& node, const Place& scope, std::size_t from) {
  Items made;
  for (std::size_t i = from; i < node.parts.size(); ++i) made.push_back(value(*node.parts[i], scope));
  return made;
}

Value Evaluator::dict(const Node& node, const Place& scope) {
  auto map = std::make_shared<Map>();
  for (std::size_t i = 0; i < node.parts.size(); i += 2) {
    const Value name = value(*node.parts[i], scope);
    map->set(key_of(run_, name), name, value(*node.parts[i + 1], scope));
    run_.take(4 * std::int64_t(sizeof(Value)));
  }
  return Value::of(Kind::dict, std::move(map));
}

Value Evaluator::compared_chain(const Node& node, const Place& scope) {
  Value left = value(*node.parts[0], scope);
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    const Value right = value(*node.parts[i + 1], scope);
    run_.line = node.line;
    if (!compared(run_, node.names[i], left, right)) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Value Evaluator::concatenated(const Node& node, const Place& scope) {
  std::string text;
  for (const NodePtr& part : node.parts) {
    const std::string one = str_of(run_, value(*part, scope));
    run_.take(std::int64_t(one.size()));
    text += one;
  }
  return run_.text(std::move(text));
}

Value Evaluator::cut(const Node& node, const Place& scope) {
  const auto bound = [&](std::size_t i) { return node.parts[i] ? value(*node.parts[i], scope) : Value::none(); };
  const Value of = value(*node.parts[0], scope), start = bound(1), stop = bound(2), step = bound(3);
  run_.line = node.line;
  return cut_of(run_, of, start, stop, step);
}

Arguments Evaluator::arguments(const Node& node, const Place& scope) {
  Arguments given;
  given.positional = values(node, scope, 1);
  for (const auto& [name, part] : node.named) given.named.emplace_back(name, value(*part, scope));
  if (node.star)
    for (const Value& item : items_of(run_, value(*node.star, scope))) given.positional.push_back(item);
  if (!node.stars) return given;
  const Value more = value(*node.stars, scope);
  if (!more.is(Kind::dict)) fail("'**' needs a dict, not a value of type '" + type_of(more) + "'");
  for (const auto& [name, item] : more.as<Map>().entries) {
    if (!name.is_text()) fail("names of arguments are texts");
    for (const auto& [other, same] : given.named)
      if (other == name.str()) fail("the argument '" + other + "' is given twice");
    run_.step(1 + std::int64_t(given.named.size() / 16));
    given.named.emplace_back(name.str(), item);
  }
  return given;
}

}  // namespace foretoken::jinja

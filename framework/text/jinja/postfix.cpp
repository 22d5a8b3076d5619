// What follows an operand: attributes, items, calls, filters and tests.
#include "framework/text/jinja/parser_core.h"

namespace foretoken::jinja {

NodePtr ExpressionParser::postfix(NodePtr value) {
  while (true) {
    if (sees_sign(".") || sees_sign("["))
      value = subscript(std::move(value));
    else if (sees_sign("("))
      value = call(std::move(value));
    else
      return value;
  }
}

NodePtr ExpressionParser::filtered(NodePtr value) {
  while (true) {
    if (sees_sign("|"))
      value = filters(std::move(value), false);
    else if (sees_name("is"))
      value = test(std::move(value));
    else if (sees_sign("("))
      value = call(std::move(value));
    else
      return value;
  }
}

NodePtr ExpressionParser::subscript(NodePtr value) {
  const int line = now().line;
  if (take_sign(".")) {
    if (sees(Type::name)) {
      NodePtr made = node(Op::attribute, line, std::move(value));
      made->name = expect_name("an attribute");
      return made;
    }
    if (!sees(Type::number) || !now().number.is(Kind::integer)) refuse("expected an attribute, not " + shown());
    NodePtr key = node(Op::constant, line);
    key->value = now().number;
    advance();
    return node(Op::item, line, std::move(value), std::move(key));
  }
  expect_sign("[");
  NodePtr made = subscribed(std::move(value), line);
  expect_sign("]");
  return made;
}

NodePtr ExpressionParser::subscribed(NodePtr value, int line) {
  if (sees_sign("]")) return node(Op::item, line, std::move(value), node(Op::tuple, line));
  NodePtr start, stop, step;
  if (!sees_sign(":")) start = expression();
  if (take_sign(":")) {
    if (!sees_sign(":") && !sees_sign("]") && !sees_sign(",")) stop = expression();
    if (take_sign(":") && !sees_sign("]") && !sees_sign(",")) step = expression();
    if (sees_sign(",")) refuse("slices with a comma are not known here");
    return node(Op::cut, line, std::move(value), std::move(start), std::move(stop), std::move(step));
  }
  if (!sees_sign(",")) return node(Op::item, line, std::move(value), std::move(start));
  std::vector<NodePtr> parts;
  parts.push_back(std::move(start));
  while (take_sign(",")) {
    if (sees_sign("]")) break;
    parts.push_back(expression());
    if (sees_sign(":")) refuse("slices with a comma are not known here");
  }
  return node(Op::item, line, std::move(value), make(Op::tuple, line, std::move(parts)));
}

// Into `parts`, behind what is there, and `named`.
void ExpressionParser::arguments(Node& call) {
  expect_sign("(");
  const auto expect_order = [&](bool holds) {
    if (!holds) refuse("an argument stands behind one that must come later");
  };
  for (bool first = true; !sees_sign(")"); first = false) {
    if (!first) {
      expect_sign(",");
      if (sees_sign(")")) break;
    }
    if (take_sign("*")) {
      expect_order(!call.star && !call.stars);
      call.star = expression();
    } else if (take_sign("**")) {
      expect_order(!call.stars);
      call.stars = expression();
    } else if (sees(Type::name) && then().type == Type::sign && then().text == "=") {
      expect_order(!call.stars);
      const std::string name = expect_name("an argument");
      expect_sign("=");
      for (const auto& [other, value] : call.named)
        if (other == name) refuse("the argument '" + name + "' is given twice");
      call.named.emplace_back(name, expression());
    } else {
      expect_order(!call.star && !call.stars && call.named.empty());
      call.parts.push_back(expression());
    }
  }
  expect_sign(")");
  for (const auto& [name, value] : call.named) call.depth = std::max(call.depth, 1 + value->depth);
  for (const NodePtr* one : {&call.star, &call.stars})
    if (*one) call.depth = std::max(call.depth, 1 + (*one)->depth);
  deepen(call, call.parts);
}

NodePtr ExpressionParser::call(NodePtr value) {
  NodePtr made = node(Op::call, now().line, std::move(value));
  arguments(*made);
  return made;
}

NodePtr ExpressionParser::filters(NodePtr value, bool inline_first) {
  while (inline_first || take_sign("|")) {
    inline_first = false;
    const int line = now().line;
    std::string name = expect_name("a filter");
    while (take_sign(".")) name += "." + expect_name("a filter");
    value = node(Op::filter, line, std::move(value));
    value->name = std::move(name);
    if (sees_sign("(")) arguments(*value);
  }
  return value;
}

NodePtr ExpressionParser::test(NodePtr value) {
  const int line = now().line;
  advance();
  const bool negated = take_name("not");
  NodePtr made = node(Op::test, line, std::move(value));
  made->name = expect_name("a test");
  while (take_sign(".")) made->name += "." + expect_name("a test");
  const bool operand = sees(Type::string) || sees(Type::number) || sees_sign("[") || sees_sign("{") ||
                       (sees(Type::name) && !sees_name("else") && !sees_name("or") && !sees_name("and"));
  if (sees_sign("(")) {
    arguments(*made);
  } else if (operand) {
    if (sees_name("is")) refuse("tests cannot be chained with 'is'");
    made->parts.push_back(postfix(primary()));
    deepen(*made, made->parts);
  }
  return negated ? node(Op::negation, line, std::move(made)) : std::move(made);
}

}  // namespace foretoken::jinja

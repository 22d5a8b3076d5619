#include <algorithm>

#include "framework/text/jinja/parser_core.h"
#include "framework/text/printable.h"

namespace foretoken::jinja {
namespace {

constexpr int kDeepestNode = 200, kDeepestRule = 240;

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& p) : parser(p) {
  if (++parser.nested_ > kDeepestRule) {
    --parser.nested_;
    parser.refuse("brackets and blocks are nested too deep");
  }
}

std::string ExpressionParser::shown() const {
  switch (now().type) {
    case Type::end:
      return "the end of the template";
    case Type::data:
      return "text";
    case Type::variable_begin:
      return "'{{'";
    case Type::variable_end:
      return "'}}'";
    case Type::block_begin:
      return "'{%'";
    case Type::block_end:
      return "'%}'";
    case Type::string:
      return "a string";
    case Type::number:
      return "a number";
    default:
      return "'" + printable(now().text) + "'";
  }
}

bool ExpressionParser::take_sign(std::string_view sign) {
  if (!sees_sign(sign)) return false;
  advance();
  return true;
}

bool ExpressionParser::take_name(std::string_view name) {
  if (!sees_name(name)) return false;
  advance();
  return true;
}

void ExpressionParser::expect_sign(std::string_view sign) {
  if (!take_sign(sign)) refuse("expected '" + std::string(sign) + "', not " + shown());
}

void ExpressionParser::expect(Type type, const char* what) {
  if (!sees(type)) refuse(std::string("expected ") + what + ", not " + shown());
  advance();
}

std::string ExpressionParser::expect_name(const char* what) {
  if (!sees(Type::name)) refuse(std::string("expected ") + what + ", not " + shown());
  const std::string name = now().text;
  advance();
  return name;
}

void ExpressionParser::deepen(Node& node, const std::vector<NodePtr>& inside) const {
  for (const NodePtr& one : inside)
    if (one) node.depth = std::max(node.depth, 1 + one->depth);
  if (node.depth > kDeepestNode)
    fail_at(where_, node.line, "an expression or a block has more than " + std::to_string(kDeepestNode) + " levels");
}

NodePtr ExpressionParser::make(Op op, int line, std::vector<NodePtr> parts) const {
  auto made = std::make_unique<Node>();
  made->op = op;
  made->line = line;
  deepen(*made, parts);
  made->parts = std::move(parts);
  return made;
}

NodePtr ExpressionParser::expression(bool choices) {
  const Nested nested(*this);
  return choices ? choice() : disjunction();
}

NodePtr ExpressionParser::choice() {
  const int line = now().line;
  NodePtr value = disjunction();
  while (take_name("if")) {
    NodePtr condition = disjunction(), otherwise;
    if (take_name("else")) otherwise = expression();
    value = node(Op::choice, line, std::move(value), std::move(condition), std::move(otherwise));
  }
  return value;
}

NodePtr ExpressionParser::disjunction() {
  NodePtr left = conjunction();
  for (int line = now().line; take_name("or"); line = now().line) {
    NodePtr right = conjunction();
    left = node(Op::disjunction, line, std::move(left), std::move(right));
  }
  return left;
}

NodePtr ExpressionParser::conjunction() {
  NodePtr left = negation();
  for (int line = now().line; take_name("and"); line = now().line) {
    NodePtr right = negation();
    left = node(Op::conjunction, line, std::move(left), std::move(right));
  }
  return left;
}

NodePtr ExpressionParser::negation() {
  const Nested nested(*this);
  const int line = now().line;
  return take_name("not") ? node(Op::negation, line, negation()) : comparison();
}

NodePtr ExpressionParser::comparison() {
  static constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
  const int line = now().line;
  std::vector<NodePtr> parts;
  std::vector<std::string> signs;
  parts.push_back(sum());
  while (true) {
    if (sees(Type::sign) && std::ranges::find(kSigns, now().text) != std::end(kSigns)) {
      signs.push_back(now().text);
      advance();
    } else if (take_name("in")) {
      signs.push_back("in");
    } else if (sees_name("not") && then().type == Type::name && then().text == "in") {
      signs.push_back("not in");
      advance();
      advance();
    } else {
      break;
    }
    parts.push_back(sum());
  }
  if (signs.empty()) return std::move(parts[0]);
  NodePtr made = make(Op::comparison, line, std::move(parts));
  made->names = std::move(signs);
  return made;
}

NodePtr ExpressionParser::sum() {
  NodePtr left = concatenation();
  while (sees_sign("+") || sees_sign("-")) {
    const int line = now().line;
    const std::string sign = now().text;
    advance();
    NodePtr right = concatenation();
    left = node(Op::binary, line, std::move(left), std::move(right));
    left->name = sign;
  }
  return left;
}

NodePtr ExpressionParser::concatenation() {
  const int line = now().line;
  std::vector<NodePtr> parts;
  parts.push_back(product());
  while (take_sign("~")) parts.push_back(product());
  return parts.size() == 1 ? std::move(parts[0]) : make(Op::concatenation, line, std::move(parts));
}

NodePtr ExpressionParser::product() {
  NodePtr left = power();
  while (sees_sign("*") || sees_sign("/") || sees_sign("//") || sees_sign("%")) {
    const int line = now().line;
    const std::string sign = now().text;
    advance();
    NodePtr right = power();
    left = node(Op::binary, line, std::move(left), std::move(right));
    left->name = sign;
  }
  return left;
}

NodePtr ExpressionParser::power() {
  NodePtr left = unary(true);
  for (int line = now().line; take_sign("**"); line = now().line) {
    NodePtr right = unary(true);
    left = node(Op::binary, line, std::move(left), std::move(right));
    left->name = "**";
  }
  return left;
}

// In jinja2 a sign binds what follows without its filters: -x|abs is (-x)|abs.
NodePtr ExpressionParser::unary(bool with_filters) {
  const Nested nested(*this);
  const int line = now().line;
  NodePtr value = take_sign("-")   ? node(Op::negative, line, unary(false))
                  : take_sign("+") ? node(Op::positive, line, unary(false))
                                   : primary();
  value = postfix(std::move(value));
  return with_filters ? filtered(std::move(value)) : std::move(value);
}

NodePtr ExpressionParser::name() {
  const int line = now().line;
  const std::string text = now().text;
  advance();
  NodePtr made = node(Op::constant, line);
  if (text == "true" || text == "True" || text == "false" || text == "False") {
    made->value = Value::boolean(text == "true" || text == "True");
  } else if (text == "none" || text == "None") {
    made->value = Value::none();
  } else {
    made->op = Op::name, made->name = text;
    for (Node* macro : macros_) {
      macro->takes_positional |= text == "varargs";
      macro->takes_named |= text == "kwargs";
      macro->takes_caller |= text == "caller";
    }
  }
  return made;
}

NodePtr ExpressionParser::primary() {
  const int line = now().line;
  if (sees(Type::name)) return name();
  if (sees(Type::string)) {
    std::string text;
    for (; sees(Type::string); advance()) text += now().text;
    NodePtr made = node(Op::constant, line);
    made->value = Value::text(std::move(text));
    return made;
  }
  if (sees(Type::number)) {
    NodePtr made = node(Op::constant, line);
    made->value = now().number;
    advance();
    return made;
  }
  if (take_sign("(")) {
    NodePtr made = tuple(true, "", true);
    expect_sign(")");
    return made;
  }
  if (sees_sign("[")) return list();
  if (sees_sign("{")) return dict();
  refuse("expected an expression, not " + shown());
}

NodePtr ExpressionParser::list() {
  const int line = now().line;
  std::vector<NodePtr> parts;
  expect_sign("[");
  while (!sees_sign("]")) {
    if (!parts.empty()) expect_sign(",");
    if (!sees_sign("]")) parts.push_back(expression());
  }
  expect_sign("]");
  return make(Op::list, line, std::move(parts));
}

NodePtr ExpressionParser::dict() {
  const int line = now().line;
  std::vector<NodePtr> parts;
  expect_sign("{");
  while (!sees_sign("}")) {
    if (!parts.empty()) expect_sign(",");
    if (sees_sign("}")) break;
    parts.push_back(expression());
    expect_sign(":");
    parts.push_back(expression());
  }
  expect_sign("}");
  return make(Op::dict, line, std::move(parts));
}

bool ExpressionParser::ends_tuple(std::string_view stop) const {
  return sees(Type::variable_end) || sees(Type::block_end) || sees_sign(")") || (!stop.empty() && sees_name(stop));
}

NodePtr ExpressionParser::tuple(bool choices, std::string_view stop, bool parentheses) {
  const int line = now().line;
  std::vector<NodePtr> parts;
  bool several = false;
  while (!ends_tuple(stop)) {
    parts.push_back(expression(choices));
    if (!take_sign(",")) break;
    several = true;
  }
  if (several || (parts.empty() && parentheses)) return make(Op::tuple, line, std::move(parts));
  if (parts.empty()) refuse("expected an expression, not " + shown());
  return std::move(parts[0]);
}

NodePtr ExpressionParser::target(bool attributes) {
  const Nested nested(*this);
  const int line = now().line;
  if (take_sign("(")) {
    NodePtr inner = target_tuple("", attributes);
    expect_sign(")");
    return inner;
  }
  if (attributes && sees(Type::name) && then().type == Type::sign && then().text == ".") {
    NodePtr space = name();
    expect_sign(".");
    NodePtr made = node(Op::attribute_target, line, std::move(space));
    made->name = expect_name("an attribute");
    return made;
  }
  return name_target();
}

NodePtr ExpressionParser::name_target() {
  static constexpr std::string_view kFixed[] = {"true", "false", "none", "True", "False", "None"};
  if (!sees(Type::name) || std::ranges::find(kFixed, now().text) != std::end(kFixed))
    refuse("expected a name to assign to, not " + shown());
  NodePtr made = node(Op::name, now().line);
  made->name = now().text;
  advance();
  return made;
}

NodePtr ExpressionParser::target_tuple(std::string_view stop, bool attributes) {
  const int line = now().line;
  std::vector<NodePtr> parts;
  bool several = false;
  while (!ends_tuple(stop)) {
    parts.push_back(target(attributes));
    if (!take_sign(",")) break;
    several = true;
  }
  if (parts.empty()) refuse("expected a name to assign to, not " + shown());
  return several ? make(Op::tuple, line, std::move(parts)) : std::move(parts[0]);
}

}  // namespace foretoken::jinja

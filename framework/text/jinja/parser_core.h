// What the two halves of the parser share: the stream of tokens, and expressions.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "framework/text/jinja/lexer.h"
#include "framework/text/jinja/node.h"

namespace foretoken::jinja {

class ExpressionParser {
 protected:
  using Type = Lexeme::Type;

  ExpressionParser(std::vector<Lexeme> lexemes, std::string where)
      : lexemes_(std::move(lexemes)), where_(std::move(where)) {}

  const Lexeme& now() const { return lexemes_[at_]; }
  const Lexeme& then() const { return lexemes_[std::min(at_ + 1, lexemes_.size() - 1)]; }
  void advance() { at_ = std::min(at_ + 1, lexemes_.size() - 1); }
  bool sees(Type type) const { return now().type == type; }
  bool sees_sign(std::string_view sign) const { return sees(Type::sign) && now().text == sign; }
  bool sees_name(std::string_view name) const { return sees(Type::name) && now().text == name; }
  bool take_sign(std::string_view sign);
  bool take_name(std::string_view name);
  void expect_sign(std::string_view sign);
  std::string expect_name(const char* what);
  void expect(Type type, const char* what);
  [[noreturn]] void refuse(const std::string& message) const { fail_at(where_, now().line, message); }
  std::string shown() const;  // the token, for messages

  NodePtr make(Op op, int line, std::vector<NodePtr> parts = {}) const;
  template <class... Parts> NodePtr node(Op op, int line, Parts... parts) const {
    std::vector<NodePtr> all;
    (all.push_back(std::move(parts)), ...);
    return make(op, line, std::move(all));
  }
  void deepen(Node& node, const std::vector<NodePtr>& inside) const;

  NodePtr expression(bool choices = true);
  // Expressions that commas separate are one tuple; `stop` is a name that ends it.
  NodePtr tuple(bool choices, std::string_view stop = "", bool parentheses = false);
  NodePtr target_tuple(std::string_view stop, bool attributes);
  NodePtr name_target();
  NodePtr filters(NodePtr value, bool inline_first);
  void arguments(Node& call);

  std::vector<Lexeme> lexemes_;
  std::string where_;
  std::size_t at_ = 0;
  std::vector<Node*> macros_;  // that are open

 private:
  // Counts recursion of the parser while it lives.
  struct Nested {
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser.nested_; }
    ExpressionParser& parser;
  };

  NodePtr choice();
  NodePtr disjunction();
  NodePtr conjunction();
  NodePtr negation();
  NodePtr comparison();
  NodePtr sum();
  NodePtr concatenation();
  NodePtr product();
  NodePtr power();
  NodePtr unary(bool filtered);
  NodePtr primary();
  NodePtr name();
  NodePtr postfix(NodePtr value);
  NodePtr filtered(NodePtr value);
  NodePtr subscript(NodePtr value);
  NodePtr subscribed(NodePtr value, int line);
  NodePtr call(NodePtr value);
  NodePtr test(NodePtr value);
  NodePtr list();
  NodePtr dict();
  NodePtr target(bool attributes);
  bool ends_tuple(std::string_view stop) const;

  int nested_ = 0;
};

}  // namespace foretoken::jinja

// Renders a tree. This module must not know where variables come from.
#pragma once
#include <memory>
#include <string>

#include "framework/text/jinja/builtins.h"
#include "framework/text/jinja/loop.h"
#include "framework/text/jinja/node.h"

namespace foretoken::jinja {

class Evaluator {
 public:
  explicit Evaluator(Run& run) : run_(run) {}
  // The text of a whole template.
  std::string render(const Node& root, const std::shared_ptr<Scope>& scope);

 private:
  using Place = std::shared_ptr<Scope>;
  enum class Flow { on, stop, proceed };

  // Statements.
  Flow statements(const std::vector<NodePtr>& body, const Place& scope, std::string& out);
  Flow statement(const Node& node, const Place& scope, std::string& out);
  Flow condition(const Node& node, const Place& scope, std::string& out);
  Flow with(const Node& node, const Place& scope, std::string& out);
  void set_block(const Node& node, const Place& scope);
  Flow filter_block(const Node& node, const Place& scope, std::string& out);
  void call_block(const Node& node, const Place& scope, std::string& out);
  Flow loop(const Node& node, const Value& iterated, const Place& scope, int depth, std::string& out);
  std::shared_ptr<Loop> made_loop(const Node& node, const Value& iterated, const Place& scope, int depth);
  void write(std::string& out, const std::string& text);
  void assign(const Node& target, const Value& value, const Place& scope);
  Value macro(const Node& node, const Place& scope);
  Value call_macro(const Node& node, const Place& scope, Arguments arguments);
  void bind_parameters(const Node& node, Arguments& arguments, const Place& inside);

  // Expressions.
  Value value(const Node& node, const Place& scope);
  Value operation(const Node& node, const Place& scope);
  Value access(const Node& node, const Place& scope);
  Value named(const std::string& name, const Place& scope) const;
  Value dict(const Node& node, const Place& scope);
  Value compared_chain(const Node& node, const Place& scope);
  Value concatenated(const Node& node, const Place& scope);
  Value cut(const Node& node, const Place& scope);
  Items values(const Node& node, const Place& scope, std::size_t from);
  Arguments arguments(const Node& node, const Place& scope);

  Run& run_;
  const Value* input_ = nullptr;  // of the filters of a block
};

}  // namespace foretoken::jinja

#include "framework/text/jinja/parser.h"

#include <algorithm>

#include "framework/text/jinja/parser_core.h"
#include "framework/text/printable.h"

namespace foretoken::jinja {
namespace {

constexpr std::size_t kLongest = 1 << 20;  // bytes of a source
constexpr int kDeepestBlock = 60;

class Parser : ExpressionParser {
 public:
  Parser(std::string_view source, const std::string& where) : ExpressionParser(lexemes_of(source, where), where) {}

  NodePtr all() {
    NodePtr root = node(Op::block, 1);
    root->body = statements({});
    deepen(*root, root->body);
    return root;
  }

 private:
  using Ends = std::vector<std::string_view>;

  // Up to the tag of one of these names, which is not taken; without names up to the end of the template.
  std::vector<NodePtr> statements(const Ends& ends);
  // The body of a block whose tag was read up to its last word, and the name of its end, which is taken.
  void body(Node& block, std::vector<NodePtr>& into, const Ends& ends);
  std::string end_of(const Ends& ends);
  NodePtr statement();
  NodePtr set(int line);
  NodePtr loop(int line);
  NodePtr condition(int line);
  NodePtr macro(int line);
  NodePtr call_block(int line);
  NodePtr filter_block(int line);
  NodePtr with(int line);
  NodePtr generation(int line);
  NodePtr print(int line);
  NodePtr leave(Op op, int line);
  void parameters(Node& macro);
  void macro_body(Node& macro, std::string_view end);

  int blocks_ = 0, loops_ = 0;
};

std::vector<NodePtr> Parser::statements(const Ends& ends) {
  std::vector<NodePtr> made;
  if (++blocks_ > kDeepestBlock)
    refuse("blocks are nested more than " + std::to_string(kDeepestBlock) + " levels deep");
  while (!sees(Type::end)) {
    const int line = now().line;
    if (sees(Type::data)) {
      made.push_back(node(Op::data, line));
      made.back()->name = now().text;
      advance();
    } else if (sees(Type::variable_begin)) {
      advance();
      made.push_back(node(Op::output, line, tuple(true)));
      expect(Type::variable_end, "'}}'");
    } else {
      expect(Type::block_begin, "a tag");
      if (sees(Type::name) && std::ranges::find(ends, now().text) != ends.end()) break;
      made.push_back(statement());
      expect(Type::block_end, "'%}'");
    }
  }
  --blocks_;
  return made;
}

std::string Parser::end_of(const Ends& ends) {
  if (!sees(Type::end)) return expect_name("a tag");
  refuse("the template ends, but '" + std::string(ends.back()) + "' must come");
}

void Parser::body(Node& block, std::vector<NodePtr>& into, const Ends& ends) {
  take_sign(":");
  expect(Type::block_end, "'%}'");
  into = statements(ends);
  deepen(block, into);
}

NodePtr Parser::statement() {
  static const std::pair<std::string_view, NodePtr (Parser::*)(int)> kStatements[] = {
      {"set", &Parser::set},         {"for", &Parser::loop},
      {"if", &Parser::condition},    {"macro", &Parser::macro},
      {"call", &Parser::call_block}, {"filter", &Parser::filter_block},
      {"with", &Parser::with},       {"generation", &Parser::generation},
      {"print", &Parser::print}};
  static constexpr std::string_view kOthers[] = {"include", "import",     "from", "extends",
                                                 "block",   "autoescape", "do",   "trans"};
  const int line = now().line;
  const std::string name = expect_name("the name of a tag");
  if (name == "break" || name == "continue") return leave(name == "break" ? Op::stop : Op::proceed, line);
  for (const auto& [word, parse] : kStatements)
    if (word == name) return (this->*parse)(line);
  if (std::ranges::find(kOthers, name) != std::end(kOthers))
    fail_at(where_, line, "the tag '" + name + "' is not known here; write the template without it");
  fail_at(where_, line, "the tag '" + printable(name) + "' is unknown, or ends a block that is not open");
}

NodePtr Parser::leave(Op op, int line) {
  if (loops_ == 0) fail_at(where_, line, "'break' and 'continue' stand in a loop alone");
  return node(op, line);
}

NodePtr Parser::set(int line) {
  NodePtr target = target_tuple("", true);
  if (take_sign("=")) return node(Op::set, line, std::move(target), tuple(true));
  NodePtr chain = sees_sign("|") ? filters(nullptr, false) : nullptr;
  NodePtr made = node(Op::set_block, line, std::move(target), std::move(chain));
  const int outer = std::exchange(loops_, 0);
  body(*made, made->body, {"endset"});
  loops_ = outer;
  end_of({"endset"});
  return made;
}

NodePtr Parser::loop(int line) {
  NodePtr target = target_tuple("in", false);
  if (!take_name("in")) refuse("expected 'in', not " + shown());
  NodePtr iterated = tuple(false, "recursive"), only;
  if (take_name("if")) only = expression();
  const bool recursive = take_name("recursive");
  NodePtr made = node(Op::loop, line, std::move(target), std::move(iterated), std::move(only));
  made->recursive = recursive;
  ++loops_;
  body(*made, made->body, {"else", "endfor"});
  --loops_;
  if (end_of({"endfor"}) == "endfor") return made;
  body(*made, made->otherwise, {"endfor"});
  end_of({"endfor"});
  return made;
}

// Of an elif, `otherwise` is the next condition alone; all share the end.
NodePtr Parser::condition(int line) {
  std::vector<NodePtr> chain;
  std::vector<NodePtr> last;
  while (true) {
    chain.push_back(node(Op::condition, line, tuple(false)));
    body(*chain.back(), chain.back()->body, {"elif", "else", "endif"});
    line = now().line;
    const std::string end = end_of({"endif"});
    if (end == "elif") continue;
    if (end == "else") {
      NodePtr otherwise = node(Op::block, line);
      body(*otherwise, otherwise->body, {"endif"});
      end_of({"endif"});
      last.push_back(std::move(otherwise));
    }
    break;
  }
  while (chain.size() > 1) {
    NodePtr inner = std::move(chain.back());
    chain.pop_back();
    inner->otherwise = std::exchange(last, {});
    deepen(*inner, inner->otherwise);
    last.push_back(std::move(inner));
  }
  chain[0]->otherwise = std::move(last);
  deepen(*chain[0], chain[0]->otherwise);
  return std::move(chain[0]);
}

// "(a, b=1)" into names and parts (their default values).
void Parser::parameters(Node& made) {
  expect_sign("(");
  while (!sees_sign(")")) {
    if (!made.names.empty()) expect_sign(",");
    made.names.push_back(name_target()->name);
    if (std::ranges::count(made.names, made.names.back()) > 1)
      refuse("the parameter '" + made.names.back() + "' is named twice");
    const bool optional = !made.parts.empty() && made.parts.back();
    made.parts.push_back(take_sign("=") ? expression() : nullptr);
    if (optional && !made.parts.back()) refuse("a parameter without a default value stands behind one that has it");
  }
  expect_sign(")");
  deepen(made, made.parts);
}

void Parser::macro_body(Node& made, std::string_view end) {
  macros_.push_back(&made);
  const int outer = std::exchange(loops_, 0);
  body(made, made.body, {end});
  loops_ = outer;
  macros_.pop_back();
  end_of({end});
}

NodePtr Parser::macro(int line) {
  NodePtr made = node(Op::macro, line);
  made->name = name_target()->name;
  parameters(*made);
  macro_body(*made, "endmacro");
  return made;
}

NodePtr Parser::call_block(int line) {
  NodePtr caller = node(Op::macro, line);
  if (sees_sign("(")) parameters(*caller);
  NodePtr call = expression();
  if (call->op != Op::call) fail_at(where_, line, "the tag 'call' needs a call");
  macro_body(*caller, "endcall");
  return node(Op::call_block, line, std::move(call), std::move(caller));
}

NodePtr Parser::filter_block(int line) {
  NodePtr made = node(Op::filter_block, line, filters(nullptr, true));
  const int outer = std::exchange(loops_, 0);
  body(*made, made->body, {"endfilter"});
  loops_ = outer;
  end_of({"endfilter"});
  return made;
}

NodePtr Parser::with(int line) {
  NodePtr made = node(Op::with, line);
  while (!sees(Type::block_end)) {
    if (!made->parts.empty()) expect_sign(",");
    made->parts.push_back(target_tuple("", false));
    expect_sign("=");
    made->parts.push_back(expression());
  }
  deepen(*made, made->parts);
  body(*made, made->body, {"endwith"});
  end_of({"endwith"});
  return made;
}

// What training masks see, and a prompt does not.
NodePtr Parser::generation(int line) {
  NodePtr made = node(Op::with, line);
  const int outer = std::exchange(loops_, 0);
  body(*made, made->body, {"endgeneration"});
  loops_ = outer;
  end_of({"endgeneration"});
  return made;
}

NodePtr Parser::print(int line) {
  NodePtr made = node(Op::output, line);
  while (!sees(Type::block_end)) {
    if (!made->parts.empty()) expect_sign(",");
    made->parts.push_back(expression());
  }
  deepen(*made, made->parts);
  return made;
}

}  // namespace

NodePtr parse_template(std::string_view source, const std::string& where) {
  if (source.size() > kLongest)
    fail(where + " is a template of " + std::to_string(source.size()) + " bytes, and at most " +
         std::to_string(kLongest) + " are read");
  return Parser(source, where).all();
}

}  // namespace foretoken::jinja

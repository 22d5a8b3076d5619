#include <algorithm>

#include "framework/text/jinja/evaluator.h"

namespace foretoken::jinja {
namespace {

std::shared_ptr<Scope> within(const std::shared_ptr<Scope>& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

}  // namespace

std::string Evaluator::render(const Node& root, const Place& scope) {
  std::string out;
  statements(root.body, within(scope), out);
  return out;
}

void Evaluator::write(std::string& out, const std::string& text) {
  run_.take(std::int64_t(text.size()));
  out += text;
  if (std::int64_t(out.size()) > run_.context().output)
    fail("the template writes more than " + std::to_string(run_.context().output >> 20) + " MiB");
}

Evaluator::Flow Evaluator::statements(const std::vector<NodePtr>& body, const Place& scope, std::string& out) {
  for (const NodePtr& one : body)
    if (const Flow flow = statement(*one, scope, out); flow != Flow::on) return flow;
  return Flow::on;
}

Evaluator::Flow Evaluator::statement(const Node& node, const Place& scope, std::string& out) {
  const Run::Deeper deeper(run_);
  run_.step();
  run_.line = node.line;
  switch (node.op) {
    case Op::data:
      write(out, node.name);
      break;
    case Op::output:
      for (const NodePtr& part : node.parts) write(out, str_of(run_, value(*part, scope)));
      break;
    case Op::set:
      assign(*node.parts[0], value(*node.parts[1], scope), scope);
      break;
    case Op::set_block:
      set_block(node, scope);
      break;
    case Op::loop:
      return loop(node, value(*node.parts[1], scope), scope, 0, out);
    case Op::condition:
      return condition(node, scope, out);
    case Op::macro:
      scope->names[node.name] = macro(node, scope);
      break;
    case Op::call_block:
      call_block(node, scope, out);
      break;
    case Op::filter_block:
      return filter_block(node, scope, out);
    case Op::with:
      return with(node, scope, out);
    case Op::stop:
      return Flow::stop;
    case Op::proceed:
      return Flow::proceed;
    default:
      return statements(node.body, scope, out);
  }
  return Flow::on;
}

// `otherwise` holds the next condition of an elif.
Evaluator::Flow Evaluator::condition(const Node& node, const Place& scope, std::string& out) {
  return statements(truth(value(*node.parts[0], scope)) ? node.body : node.otherwise, scope, out);
}

// All values are those of outside.
Evaluator::Flow Evaluator::with(const Node& node, const Place& scope, std::string& out) {
  const Place inside = within(scope);
  Items given;
  for (std::size_t i = 1; i < node.parts.size(); i += 2) given.push_back(value(*node.parts[i], scope));
  for (std::size_t i = 0; i < given.size(); ++i) assign(*node.parts[2 * i], given[i], inside);
  return statements(node.body, inside, out);
}

void Evaluator::set_block(const Node& node, const Place& scope) {
  std::string text;
  if (statements(node.body, within(scope), text) != Flow::on) fail("a block 'set' is left in its middle");
  Value made = run_.text(std::move(text));
  if (node.parts[1]) {
    const Value* outer = std::exchange(input_, &made);
    const Value filtered = value(*node.parts[1], scope);
    input_ = outer;
    made = filtered;
  }
  assign(*node.parts[0], made, scope);
}

Evaluator::Flow Evaluator::filter_block(const Node& node, const Place& scope, std::string& out) {
  std::string text;
  const Place inside = within(scope);
  if (statements(node.body, inside, text) != Flow::on) fail("a block 'filter' is left in its middle");
  const Value made = run_.text(std::move(text));
  const Value* outer = std::exchange(input_, &made);
  const Value filtered = value(*node.parts[0], inside);
  input_ = outer;
  write(out, str_of(run_, filtered));
  return Flow::on;
}

void Evaluator::call_block(const Node& node, const Place& scope, std::string& out) {
  const Node& call = *node.parts[0];
  const Value function = value(*call.parts[0], scope);
  Arguments given = arguments(call, scope);
  given.named.emplace_back("caller", macro(*node.parts[1], scope));
  run_.line = node.line;
  write(out, str_of(run_, called(run_, function, std::move(given))));
}

std::shared_ptr<Loop> Evaluator::made_loop(const Node& node, const Value& iterated, const Place& scope, int depth) {
  auto loop = std::make_shared<Loop>();
  run_.take(std::int64_t(sizeof(Loop)));
  loop->depth0 = depth;
  const auto items = std::make_shared<Iterator>(run_, iterated);
  const Node* only = node.parts[2].get();
  if (!only) {
    if (!iterated.is(Kind::generator)) loop->counted = length_of(run_, iterated);
    loop->source = [items](Value& item) { return items->next(item); };
  } else {
    loop->source = [this, items, only, scope, &node](Value& item) {
      while (items->next(item)) {
        const Place asked = within(scope);
        assign(*node.parts[0], item, asked);
        if (truth(value(*only, asked))) return true;
      }
      return false;
    };
  }
  if (node.recursive) {
    run_.keep(scope);
    loop->again = [this, &node, scope, depth](Run&, const Value& inner) {
      std::string out;
      this->loop(node, inner, scope, depth + 1, out);
      return run_.text(std::move(out));
    };
  }
  return loop;
}

Evaluator::Flow Evaluator::loop(const Node& node, const Value& iterated, const Place& scope, int depth,
                                std::string& out) {
  const Run::Deeper deeper(run_);
  const std::shared_ptr<Loop> loop = made_loop(node, iterated, scope, depth);
  const Value variable = Value::of(Kind::loop, loop);
  bool completed = false;
  for (Value item; loop->take(item);) {
    ++loop->index0;
    loop->before = std::exchange(loop->current, item);
    const Place inside = within(scope);
    assign(*node.parts[0], item, inside);
    inside->names["loop"] = variable;
    const Flow flow = statements(node.body, inside, out);
    if (flow == Flow::stop) break;
    completed |= flow == Flow::on;  // as jinja2 has it: what `continue` leaves does not count
  }
  if (completed) return Flow::on;
  return statements(node.otherwise, within(scope), out);
}

void Evaluator::assign(const Node& target, const Value& value, const Place& scope) {
  if (target.op == Op::name) {
    scope->names[target.name] = value;
    run_.take(64);
    return;
  }
  if (target.op == Op::tuple) {
    const Items items = items_of(run_, value);
    if (items.size() != target.parts.size())
      fail(std::to_string(items.size()) + " values cannot be assigned to " + std::to_string(target.parts.size()) +
           " names");
    for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope);
    return;
  }
  const Value space = named(target.parts[0]->name, scope);
  if (!space.is(Kind::space)) fail("'" + target.parts[0]->name + "' is no namespace, so it takes no attribute");
  if (target.name.starts_with('_'))
    fail("the attribute '" + target.name + "' of a namespace begins with '_', which templates may not use");
  run_.take(64);
  space.as<Space>().attributes.set("s" + target.name, run_.text(target.name), value);
}

Value Evaluator::macro(const Node& node, const Place& scope) {
  run_.keep(scope);
  return run_.function(
      node.name, [this, &node, scope](Run&, Arguments given) { return call_macro(node, scope, std::move(given)); });
}

void Evaluator::bind_parameters(const Node& node, Arguments& given, const Place& inside) {
  const std::string callee = node.name.empty() ? "a block 'call'" : "the macro '" + node.name + "'";
  const std::size_t count = std::min(given.positional.size(), node.names.size());
  std::vector<bool> bound(node.names.size());
  for (std::size_t i = 0; i < count; ++i) inside->names[node.names[i]] = given.positional[i], bound[i] = true;
  auto& named = given.named;
  for (std::size_t i = count; i < node.names.size(); ++i) {
    const auto it = std::ranges::find(named, node.names[i], &std::pair<std::string, Value>::first);
    if (it == named.end()) continue;
    inside->names[node.names[i]] = it->second, bound[i] = true;
    named.erase(it);
  }
  for (std::size_t i = 0; i < node.names.size(); ++i)
    if (!bound[i])
      inside->names[node.names[i]] = node.parts[i]
                                         ? value(*node.parts[i], inside)
                                         : Value::undefined(callee + " was called without '" + node.names[i] + "'");
  if (node.takes_caller && std::ranges::find(node.names, "caller") == node.names.end()) {
    const auto it = std::ranges::find(named, "caller", &std::pair<std::string, Value>::first);
    inside->names["caller"] =
        it == named.end() ? Value::undefined(callee + " was not called by a block 'call'") : it->second;
    if (it != named.end()) named.erase(it);
  }
  if (node.takes_named) {
    auto map = std::make_shared<Map>();
    for (const auto& [name, one] : named) map->set("s" + name, run_.text(name), one);
    inside->names["kwargs"] = Value::of(Kind::dict, std::move(map));
  } else if (!named.empty()) {
    fail(callee + " has no argument '" + named[0].first + "'");
  }
  if (node.takes_positional)
    inside->names["varargs"] =
        run_.tuple(Items(given.positional.begin() + std::ptrdiff_t(count), given.positional.end()));
  else if (given.positional.size() > node.names.size())
    fail(callee + " takes at most " + std::to_string(node.names.size()) + " arguments");
}

Value Evaluator::call_macro(const Node& node, const Place& scope, Arguments given) {
  const Run::Deeper deeper(run_);
  const Place inside = within(scope);
  bind_parameters(node, given, inside);
  std::string out;
  statements(node.body, inside, out);
  return run_.text(std::move(out));
}

}  // namespace foretoken::jinja

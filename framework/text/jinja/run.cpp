#include "framework/text/jinja/run.h"

namespace foretoken::jinja {

Run::~Run() {
  for (const auto& scope : scopes_) scope->names.clear();
  for (const auto& space : spaces_) space->attributes.places.clear(), space->attributes.entries.clear();
}

void Run::step(std::int64_t n) {
  steps_ += n;
  if (steps_ > context_.steps)
    fail("the template takes more than " + std::to_string(context_.steps) + " steps to render");
}

void Run::take(std::int64_t bytes) {
  bytes_ += bytes;
  if (bytes > context_.bytes || bytes_ > context_.bytes)
    fail("the template makes more than " + std::to_string(context_.bytes >> 20) + " MiB of values");
}

Value Run::text(std::string s, Kind kind) {
  take(std::int64_t(sizeof(Text) + s.size()));
  return Value::text(std::move(s), kind);
}

Value Run::sequence(Kind kind, Items items) {
  take(std::int64_t(sizeof(Sequence) + items.size() * sizeof(Value)));
  return Value::sequence(kind, std::move(items));
}

Value Run::space(Map attributes) {
  take(std::int64_t(sizeof(Space) + attributes.entries.size() * 128));
  auto made = std::make_shared<Space>();
  made->attributes = std::move(attributes);
  spaces_.push_back(made);
  return Value::of(Kind::space, std::move(made));
}

Value Run::function(std::string name, std::function<Value(Run&, Arguments)> call) {
  take(std::int64_t(sizeof(Function) + 64));
  auto made = std::make_shared<Function>();
  made->name = std::move(name);
  made->call = std::move(call);
  return Value::of(Kind::function, std::move(made));
}

void Run::keep(std::shared_ptr<Scope> scope) {
  take(std::int64_t(sizeof(Scope)));
  if (scopes_.empty() || scopes_.back() != scope) scopes_.push_back(std::move(scope));
}

Run::Deeper::Deeper(Run& run) : run_(run) {
  if (++run_.depth_ > run_.context_.depth) {
    --run_.depth_;
    fail("the template calls itself, or nests, more than " + std::to_string(run_.context_.depth) + " levels deep");
  }
}

}  // namespace foretoken::jinja

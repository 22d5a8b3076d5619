// One rendering: what it may still use, its date, and the values that it must take apart at its end. A template comes
// from anywhere, so its steps, memory, depth and output are bounded.
#pragma once
#include <memory>
#include <vector>

#include "framework/text/jinja/template.h"
#include "framework/text/jinja/value.h"

namespace foretoken::jinja {

// Variables of one block of a template.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string, Value> names;
};

class Run {
 public:
  explicit Run(const Context& context) : context_(context) {}
  ~Run();
  Run(const Run&) = delete;

  const Context& context() const { return context_; }
  // Each is an Error where the bound is passed.
  void step(std::int64_t n = 1);
  void take(std::int64_t bytes);

  Value text(std::string s, Kind kind = Kind::string);
  Value sequence(Kind kind, Items items);
  Value list(Items items) { return sequence(Kind::list, std::move(items)); }
  Value tuple(Items items) { return sequence(Kind::tuple, std::move(items)); }
  Value space(Map attributes);
  Value function(std::string name, std::function<Value(Run&, Arguments)> call);
  // Macros and namespaces may refer to each other in a circle, which is broken at the end.
  void keep(std::shared_ptr<Scope> scope);

  int line = 0;  // that is being evaluated

  // Counts nested evaluations while it lives.
  class Deeper {
   public:
    explicit Deeper(Run& run);
    ~Deeper() { --run_.depth_; }
    Deeper(const Deeper&) = delete;

   private:
    Run& run_;
  };

 private:
  Context context_;
  std::int64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
  std::vector<std::shared_ptr<Scope>> scopes_;
  std::vector<std::shared_ptr<const Space>> spaces_;
};

}  // namespace foretoken::jinja

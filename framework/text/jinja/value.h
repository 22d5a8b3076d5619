// The values of a template: Python's, as far as templates meet them. Lists, tuples and dicts never change once made
// (the sandbox of Transformers forbids it), so they are shared. This module must not know the syntax of templates.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace foretoken::jinja {

class Run;

enum class Kind {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  markup,  // a string that the filter `safe` or `escape` made
  list,
  tuple,
  dict,
  view,  // keys(), values() or items() of a dict
  range,
  generator,
  space,  // namespace()
  function,
  loop,
};

// What a value refers to. `depth` counts values inside of values.
struct Body {
  virtual ~Body() = default;
  int depth = 1;
};

class Value {
 public:
  Value() = default;  // undefined
  static Value undefined(std::string why);
  static Value none();
  static Value boolean(bool b);
  static Value integer(std::int64_t i);
  static Value real(double d);
  static Value text(std::string s, Kind kind = Kind::string);
  static Value of(Kind kind, std::shared_ptr<const Body> body);
  // Nesting beyond kDeepest is an Error.
  static Value sequence(Kind kind, std::vector<Value> items);

  static constexpr int kDeepest = 100;

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_text() const { return kind_ == Kind::string || kind_ == Kind::markup; }
  bool is_whole() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_whole() || kind_ == Kind::real; }
  bool is_items() const { return kind_ == Kind::list || kind_ == Kind::tuple; }

  std::int64_t whole() const { return whole_; }  // of an integer or boolean
  double number() const { return kind_ == Kind::real ? real_ : double(whole_); }
  const std::string& str() const;           // of a string or markup
  const std::vector<Value>& items() const;  // of a list, tuple or generator
  const std::string& reason() const;        // of an undefined value: what an Error says of it
  const Body* body() const { return body_.get(); }
  template <class T> const T& as() const { return static_cast<const T&>(*body_); }
  int depth() const { return body_ ? body_->depth : 0; }
  bool same(const Value& other) const;  // Python's `is`

 private:
  Kind kind_ = Kind::undefined;
  union {
    std::int64_t whole_ = 0;
    double real_;
  };
  std::shared_ptr<const Body> body_;
};

using Items = std::vector<Value>;

struct Arguments {
  Items positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Text : Body {
  std::string text;
};
struct Sequence : Body {
  Items items;
  bool group = false;            // a tuple of `groupby`, with names
  mutable std::size_t next = 0;  // of a generator: what was consumed
};
// In the order of insertion.
struct Map : Body {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, std::size_t> places;  // by key_of()

  const Value* find(const std::string& key) const;
  void set(std::string key, Value name, Value value);
};
struct View : Body {
  enum class Of { keys, values, items } of;
  Value dict;
};
struct Range : Body {
  std::int64_t start, stop, step, count;
};
struct Space : Body {
  mutable Map attributes;
};
struct Function : Body {
  std::string name;
  std::function<Value(Run&, Arguments)> call;
};

[[noreturn]] void fail(const std::string& message);
// Python's name of a type: "str".
std::string type_of(const Value& value);
bool truth(const Value& value);
// The same for values that are equal as keys. What is no key (a list) is an Error.
std::string key_of(Run& run, const Value& value);
bool equal(Run& run, const Value& a, const Value& b);
// Python's str(), repr(); of a float: repr.
std::string str_of(Run& run, const Value& value);
std::string repr_of(Run& run, const Value& value);
std::string repr_of_real(double number);
// Of what has a length: code points, items; an Error otherwise.
std::int64_t length_of(Run& run, const Value& value);

// One value after another. What cannot be iterated is an Error.
class Iterator {
 public:
  Iterator(Run& run, Value of);
  bool next(Value& value);

 private:
  Run* run_;
  Value of_;
  std::size_t at_ = 0;
};
Items items_of(Run& run, const Value& value);
bool iterable(const Value& value);

}  // namespace foretoken::jinja

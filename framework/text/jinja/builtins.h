// What expressions do with values: operators, attributes, items, filters, tests, methods and functions, as Python and
// jinja2 have them. This module must not know the syntax of templates.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/text/jinja/run.h"

namespace foretoken::jinja {

// Arguments by the parameters of what is called: "width first blank"; one that is given by place alone is "/chars".
// Whatever does not fit is an Error that names the callee.
class Bound {
 public:
  Bound(std::string callee, std::string_view parameters, int required, Arguments arguments);

  const Value* at(std::size_t i) const { return i < given_.size() && given_[i] ? &*given_[i] : nullptr; }
  // At a place where nothing is given, `otherwise`; another type is an Error.
  std::int64_t whole(std::size_t i, std::int64_t otherwise) const;
  std::int64_t whole_or_none(std::size_t i, std::int64_t otherwise) const;  // None counts as nothing
  std::string text(std::size_t i, std::string otherwise) const;
  bool flag(std::size_t i, bool otherwise) const;  // the truth of any value
  Value value(std::size_t i, Value otherwise) const { return at(i) ? *at(i) : otherwise; }
  // As they were, where the parameters are "*".
  const Arguments& all() const { return all_; }
  const std::string& callee() const { return callee_; }

 private:
  std::string callee_;
  std::vector<std::optional<Value>> given_;
  Arguments all_;
};

// A filter, a test or a method of a type.
struct Builtin {
  const char* name;
  const char* parameters;
  int required;
  Value (*apply)(Run& run, const Value& value, const Bound& arguments);
};

// Python's operators: "+", "-", "*", "/", "//", "%", "**"; "==", "!=", "<", "<=", ">", ">=", "in", "not in".
Value operated(Run& run, const std::string& sign, const Value& a, const Value& b);
bool compared(Run& run, const std::string& sign, const Value& a, const Value& b);
bool less(Run& run, const Value& a, const Value& b);
Value negative(const Value& value);
// A float as an integer, towards zero; what does not fit is an Error.
std::int64_t whole_of_real(double number);

// value.name, value[key] and value[start:stop:step] (None: not given). What is missing is undefined.
Value attribute_of(Run& run, const Value& value, const std::string& name);
Value item_of(Run& run, const Value& value, const Value& key);
Value cut_of(Run& run, const Value& value, const Value& start, const Value& stop, const Value& step);
// The place of text[at..] where `part` begins, in bytes, or npos. Its time counts as steps.
std::size_t find_text(Run& run, std::string_view text, std::string_view part, std::size_t at);
std::string replaced(Run& run, const std::string& text, const std::string& old, const std::string& by,
                     std::int64_t most);

Value called(Run& run, const Value& function, Arguments arguments);
Value filtered(Run& run, const std::string& name, const Value& value, Arguments arguments);
bool tested(Run& run, const std::string& name, const Value& value, Arguments arguments);
bool is_filter(const std::string& name);
bool is_test(const std::string& name);
// A method of a value's type, bound to it; nothing where the type has none of the name.
std::optional<Value> method_of(Run& run, const Value& value, const std::string& name);

// Filters by what they take.
const std::vector<Builtin>& text_filters();
const std::vector<Builtin>& item_filters();
const std::vector<Builtin>& number_filters();
const std::vector<Builtin>& choice_filters();
const std::vector<Builtin>& text_methods();

// Functions that every template has.
std::unordered_map<std::string, Value> globals(Run& run);
// json.dumps(): `indent` none, a count or a text; separators as given.
std::string json_of(Run& run, const Value& value, const Bound& how);

}  // namespace foretoken::jinja

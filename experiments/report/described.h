// Structs that are described once, field by field, and what follows from a description: their JSON, reading it, and its
// schema. A struct is described by a function describe(visitor, struct), found by argument-dependent lookup, that calls
// visitor(name, member, meaning) for each field. Members are numbers, strings, objects (nlohmann::json), described
// structs, and vectors, maps and optionals of these. An optional member that is empty is left out; within a vector it
// is null. Whole numbers are counts: none is negative. This module must not know any of the structs.
#pragma once
#include <algorithm>
#include <charconv>
#include <concepts>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/text/json_file.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {

// Of the argument of a describe(): U, or const U.
template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

namespace described {

using nlohmann::json;

template <class T> constexpr bool is_optional = false;
template <class T> constexpr bool is_optional<std::optional<T>> = true;
template <class T> constexpr bool is_vector = false;
template <class T> constexpr bool is_vector<std::vector<T>> = true;
template <class T> constexpr bool is_map = false;
template <class K, class T> constexpr bool is_map<std::map<K, T>> = true;

template <class T> json written(const T& value);

class Writer {
 public:
  template <class T> void operator()(const char* name, const T& value, const char*) {
    if constexpr (is_optional<T>) {
      if (value) out[name] = written(*value);
    } else {
      out[name] = written(value);
    }
  }
  json out = json::object();
};

inline std::string text_of(int key) { return std::to_string(key); }
inline std::string text_of(const std::string& key) { return key; }

template <class T> json written(const T& value) {
  if constexpr (is_optional<T>) {
    return value ? written(*value) : json();
  } else if constexpr (is_vector<T>) {
    json all = json::array();
    for (const auto& one : value) all.push_back(written(one));
    return all;
  } else if constexpr (is_map<T>) {
    json all = json::object();
    for (const auto& [key, one] : value) all[text_of(key)] = written(one);
    return all;
  } else if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string> || std::same_as<T, json>) {
    return value;
  } else {
    Writer writer;
    describe(writer, value);
    return std::move(writer.out);
  }
}

// Where a value stands: "repeats/0/baseline/tokens".
struct Place {
  const Place* outer = nullptr;
  std::string name = {};
  std::string text() const { return outer && !outer->name.empty() ? outer->text() + "/" + name : name; }
};

[[noreturn]] inline void refuse(const json& value, const Place& at, const char* wanted) {
  throw Error((at.outer ? "'" + at.text() + "'" : std::string("the line")) + " is " + shown(value) + ", but must be " +
              wanted);
}

template <class T> void read(const json& value, T& into, const Place& at);

class Names {
 public:
  template <class T> void operator()(const char* name, T&, const char*) { all.push_back(name); }
  std::vector<std::string> all;
};

class Reader {
 public:
  Reader(const json& in, const Place& at) : in_(in), at_(at) {}

  template <class T> void operator()(const char* name, T& value, const char* meaning) {
    const auto found = in_.find(name);
    if (found != in_.end()) {
      ++found_;
      if constexpr (is_optional<T>)
        read(*found, value.emplace(), Place{&at_, name});
      else
        read(*found, value, Place{&at_, name});
    } else if constexpr (!is_optional<T>) {
      throw Error("'" + Place{&at_, name}.text() + "' is missing (" + meaning + ")");
    }
  }
  template <class T> void refuse_others(T& value) const {
    if (found_ == in_.size()) return;
    Names names;
    describe(names, value);
    for (const auto& [name, unused] : in_.items())
      if (std::ranges::find(names.all, name) == names.all.end())
        throw Error("'" + Place{&at_, name}.text() + "' is an unknown field" + suggestion(name, names.all));
  }

 private:
  const json& in_;
  const Place& at_;
  std::size_t found_ = 0;
};

template <class K> K key_from(const std::string& text, const json& object, const Place& at) {
  if constexpr (std::same_as<K, std::string>) {
    return text;
  } else {
    K key{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), key);
    if (error != std::errc() || end != text.data() + text.size()) refuse(object, at, "an object with numbers as names");
    return key;
  }
}

template <class T> void read(const json& value, T& into, const Place& at) {
  const auto expect = [&](bool fits, const char* wanted) {
    if (!fits) refuse(value, at, wanted);
  };
  if constexpr (is_optional<T>) {
    if (!value.is_null()) read(value, into.emplace(), at);
  } else if constexpr (is_vector<T>) {
    expect(value.is_array(), "a list");
    into.resize(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) read(value[i], into[i], Place{&at, std::to_string(i)});
  } else if constexpr (is_map<T>) {
    expect(value.is_object(), "an object");
    for (const auto& [key, one] : value.items())
      read(one, into[key_from<typename T::key_type>(key, value, at)], Place{&at, key});
  } else if constexpr (std::same_as<T, bool>) {
    expect(value.is_boolean(), "true or false");
    into = value.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    expect(value.is_number_integer() && (value.is_number_unsigned() || value >= 0) &&
               value.get<std::uint64_t>() <= std::uint64_t(std::numeric_limits<T>::max()),
           "a whole number that is not negative");
    into = value.get<T>();
  } else if constexpr (std::is_floating_point_v<T>) {
    expect(value.is_number(), "a number");
    into = value.get<T>();
  } else if constexpr (std::same_as<T, std::string>) {
    expect(value.is_string(), "a string");
    into = value.get<std::string>();
  } else {
    expect(value.is_object(), "an object");
    if constexpr (std::same_as<T, json>) {
      into = value;
    } else {
      Reader reader(value, at);
      describe(reader, into);
      reader.refuse_others(into);
    }
  }
}

template <class T> json schema_of();

class Schema {
 public:
  template <class T> void operator()(const char* name, const T&, const char* meaning) {
    if constexpr (is_optional<T>) {
      properties[name] = schema_of<typename T::value_type>();
    } else {
      properties[name] = schema_of<T>();
      required.push_back(name);
    }
    properties[name]["description"] = meaning;
  }
  json properties = json::object(), required = json::array();
};

template <class T> json schema_of() {
  if constexpr (is_optional<T>) {
    return {{"anyOf", {schema_of<typename T::value_type>(), {{"type", "null"}}}}};
  } else if constexpr (is_vector<T>) {
    return {{"type", "array"}, {"items", schema_of<typename T::value_type>()}};
  } else if constexpr (is_map<T>) {
    json found{{"type", "object"}, {"additionalProperties", schema_of<typename T::mapped_type>()}};
    if constexpr (std::integral<typename T::key_type>) found["propertyNames"] = {{"pattern", "^[0-9]+$"}};
    return found;
  } else if constexpr (std::same_as<T, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::is_integral_v<T>) {
    return {{"type", "integer"}, {"minimum", 0}};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {{"type", "number"}};
  } else if constexpr (std::same_as<T, std::string>) {
    return {{"type", "string"}};
  } else if constexpr (std::same_as<T, json>) {
    return {{"type", "object"}};
  } else {
    Schema schema;
    const T none{};
    describe(schema, none);
    return {{"type", "object"},
            {"properties", std::move(schema.properties)},
            {"required", std::move(schema.required)},
            {"additionalProperties", false}};
  }
}

}  // namespace described
}  // namespace foretoken

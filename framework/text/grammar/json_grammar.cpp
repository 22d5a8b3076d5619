#include "framework/text/grammar/json_grammar.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/text/grammar/json_text.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Part = Grammar::Part;

constexpr int kMostLength = 10000;  // of strings and arrays with limits
constexpr int kMostSchemas = 10000, kMostNested = 100;

const std::vector<std::string> kDescribes{"title",    "description", "default",  "examples",  "$schema", "$id",
                                          "$comment", "deprecated",  "readOnly", "writeOnly", "$defs",   "definitions"};

struct Format {
  const char* name;
  const char* pattern;
};
constexpr const char* kDate = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])";
constexpr const char* kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";

// Whether a value has a type by its name, or one of a list of names.
bool is_of(const json& value, const json& type) {
  if (type.is_array()) return std::ranges::any_of(type, [&](const json& t) { return is_of(value, t); });
  if (type == "integer") return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
  return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
         (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
         (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null());
}

// Keywords of one schema, each of which must be used.
class Keywords {
 public:
  Keywords(const json& schema, std::string where) : schema_(schema), where_(std::move(where)) {
    for (const auto& [key, value] : schema.items())
      if (std::ranges::find(kDescribes, key) == kDescribes.end()) left_.push_back(key);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("the JSON schema, at '" + (where_.empty() ? "/" : where_) + "': " + what);
  }
  const std::string& where() const { return where_; }
  bool has(const std::string& key) const { return schema_.contains(key); }

  const json* take(const std::string& key) {
    std::erase(left_, key);
    const auto it = schema_.find(key);
    return it == schema_.end() ? nullptr : &*it;
  }
  std::optional<int> length(const std::string& key) {
    const json* j = take(key);
    if (!j) return std::nullopt;
    if (!j->is_number_unsigned() || j->get<std::uint64_t>() > std::uint64_t(kMostLength))
      fail("'" + key + "' must be a whole number from 0 to " + std::to_string(kMostLength));
    return j->get<int>();
  }
  // Of an integer; 5.0 counts as 5.
  std::optional<std::int64_t> limit(const std::string& key) {
    const json* j = take(key);
    if (!j) return std::nullopt;
    const bool whole = j->is_number_integer() || (j->is_number() && std::floor(j->get<double>()) == j->get<double>());
    if (!whole || !(std::abs(j->get<double>()) <= double(JsonText::kLargest)))
      fail("'" + key + "' must be a whole number of at most 18 digits");
    return j->get<std::int64_t>();
  }
  void expect_none_left() const {
    if (!left_.empty())
      fail("the keyword '" + left_.front() + "' is not computed here; remove it, or describe it in the prompt");
  }

 private:
  const json& schema_;
  std::string where_;
  std::vector<std::string> left_;
};

class Schemas {
 public:
  Schemas(Grammar& grammar, const json& root) : grammar_(grammar), text_(grammar), root_(root) {}

  Part document() { return grammar_.sequence({text_.space(), of(root_, "", 0)}); }

 private:
  // By the name of each type.
  Part of_type(const std::string& type, Keywords& k, int depth) {
    if (type == "object") return object(k, depth);
    if (type == "array") return array(k, depth);
    if (type == "string") return string(k);
    if (type == "integer") return integer(k);
    if (type == "number") return number(k);
    if (type == "boolean") return text_.boolean();
    if (type == "null") return grammar_.text("null");
    k.fail("'type' must be object, array, string, integer, number, boolean or null, not " + json(type).dump());
  }

  Part of(const json& schema, const std::string& where, int depth) {
    if (schema.is_boolean() && schema.get<bool>()) return text_.value();
    if (!schema.is_object()) throw Error("the JSON schema, at '" + where + "': must be an object, or true");
    if (++made_ > kMostSchemas || depth > kMostNested)
      throw Error("the JSON schema is too large: at most " + std::to_string(kMostSchemas) + " schemas, " +
                  std::to_string(kMostNested) + " within each other");
    Keywords k(schema, where);
    const Part made = of_keywords(k, schema, depth);
    k.expect_none_left();
    return made;
  }

  Part of_keywords(Keywords& k, const json& schema, int depth) {
    if (const json* ref = k.take("$ref")) return reference(k, *ref, depth);
    for (const char* key : {"anyOf", "allOf"}) {
      const json* all = k.take(key);
      if (!all) continue;
      if (!all->is_array() || all->empty()) k.fail("'" + std::string(key) + "' must be a list of schemas");
      if (std::string(key) == "allOf" && all->size() > 1)
        k.fail("'allOf' of several schemas is not computed; write them as one");
      std::vector<Part> ways;
      for (std::size_t i = 0; i < all->size(); ++i)
        ways.push_back(of((*all)[i], k.where() + "/" + key + "/" + std::to_string(i), depth + 1));
      return grammar_.choice(std::move(ways));
    }
    if (const json* values = k.take("enum")) {
      if (!values->is_array() || values->empty()) k.fail("'enum' must be a list of values");
      return values_of(*values, k);
    }
    if (const json* value = k.take("const")) return values_of(json::array({*value}), k);
    const json* type = k.take("type");
    if (!type) {
      if (schema.contains("properties")) return object(k, depth);
      if (schema.contains("items") || schema.contains("prefixItems")) return array(k, depth);
      return text_.value();
    }
    if (type->is_string()) return of_type(type->get<std::string>(), k, depth);
    if (!type->is_array() || type->empty()) k.fail("'type' must be a name, or a list of names");
    std::vector<Part> ways;
    for (const json& t : *type) {
      if (!t.is_string()) k.fail("'type' must be a name, or a list of names");
      ways.push_back(of_type(t.get<std::string>(), k, depth));
    }
    return grammar_.choice(std::move(ways));
  }

  // Those of the type, where there is one.
  Part values_of(const json& values, Keywords& k) {
    const json* type = k.take("type");
    std::vector<Part> ways;
    for (const json& v : values)
      if (!type || is_of(v, *type)) ways.push_back(grammar_.text(v.dump()));
    if (ways.empty()) k.fail("none of its values has its type, " + type->dump());
    return grammar_.choice(std::move(ways));
  }

  Part reference(const Keywords& k, const json& ref, int depth) {
    if (!ref.is_string() || ref.get<std::string>().rfind('#', 0) != 0)
      k.fail("'$ref' must point into the schema itself, as \"#/$defs/NAME\"");
    const std::string pointer = ref.get<std::string>().substr(1);
    const auto known = references_.find(pointer);
    if (known != references_.end()) return known->second;
    const json* at = nullptr;
    try {
      at = &root_.at(json::json_pointer(pointer));
    } catch (const json::exception&) {
      k.fail("'$ref' points to '" + ref.get<std::string>() + "', which is not there");
    }
    const Part rule = references_[pointer] = grammar_.rule();
    grammar_.define(rule, of(*at, pointer, depth + 1));
    return rule;
  }

  Part string(Keywords& k) {
    const std::optional<int> least = k.length("minLength"), most = k.length("maxLength");
    const json* pattern = k.take("pattern");
    const json* format = k.take("format");
    if ((pattern != nullptr) + (format != nullptr) + (least || most) > 1)
      k.fail("only one of 'pattern', 'format' and lengths can hold; write them as one 'pattern'");
    if (pattern) {
      if (!pattern->is_string()) k.fail("'pattern' must be a string");
      return text_.string_of(pattern->get<std::string>(), false);
    }
    if (format) return of_format(k, *format);
    if (most && least.value_or(0) > *most) k.fail("'minLength' is above 'maxLength'");
    return text_.string(least.value_or(0), most.value_or(Grammar::kUnbounded));
  }

  Part of_format(const Keywords& k, const json& format) {
    const std::string date = kDate, time = kTime, hex = "[0-9a-f]";
    const std::map<std::string, std::string> patterns{
        {"date", date},
        {"time", time},
        {"date-time", date + "T" + time},
        {"uuid", hex + "{8}-" + hex + "{4}-" + hex + "{4}-" + hex + "{4}-" + hex + "{12}"}};
    const auto it = format.is_string() ? patterns.find(format.get<std::string>()) : patterns.end();
    if (it == patterns.end()) k.fail("'format' must be date, time, date-time or uuid; write others as a 'pattern'");
    return text_.string_of(it->second, true);
  }

  // Limits of numbers are not computed, those of integers are: of a list of both they would hold for one alone.
  Part number(const Keywords& k) {
    for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
      if (k.has(key)) k.fail("'" + std::string(key) + "' is computed for integers alone; give \"type\": \"integer\"");
    return text_.number();
  }

  Part integer(Keywords& k) {
    std::optional<std::int64_t> least = k.limit("minimum"), most = k.limit("maximum");
    if (const auto above = k.limit("exclusiveMinimum")) least = std::max(least.value_or(*above + 1), *above + 1);
    if (const auto below = k.limit("exclusiveMaximum")) most = std::min(most.value_or(*below - 1), *below - 1);
    if (least && most && *least > *most) k.fail("its minimum is above its maximum");
    return text_.integer(least, most);
  }

  Part array(Keywords& k, int depth) {
    const int least = k.length("minItems").value_or(0);
    const std::optional<int> most = k.length("maxItems");
    if (most && least > *most) k.fail("'minItems' is above 'maxItems'");
    const json* items = k.take("items");
    if (const json* prefix = k.take("prefixItems")) {
      if (!prefix->is_array() || prefix->empty()) k.fail("'prefixItems' must be a list of schemas");
      if (items && *items != json(false)) k.fail("'items' behind 'prefixItems' must be false here");
      if (std::size_t(least) > prefix->size() || std::size_t(most.value_or(kMostLength)) < prefix->size())
        k.fail("'minItems' and 'maxItems' must allow as many items as 'prefixItems' has");
      return tuple(k, *prefix, depth);
    }
    const Part item = items ? of(*items, k.where() + "/items", depth + 1) : text_.value();
    return text_.list(grammar_.text("["), item, grammar_.text("]"), least, most.value_or(Grammar::kUnbounded));
  }

  Part tuple(const Keywords& k, const json& prefix, int depth) {
    std::vector<Part> parts{grammar_.text("["), text_.space()};
    for (std::size_t i = 0; i < prefix.size(); ++i) {
      if (i > 0) parts.push_back(text_.comma());
      parts.push_back(of(prefix[i], k.where() + "/prefixItems/" + std::to_string(i), depth + 1));
    }
    parts.push_back(text_.space()), parts.push_back(grammar_.text("]"));
    return grammar_.sequence(std::move(parts));
  }

  Part object(Keywords& k, int depth) {
    const json* properties = k.take("properties");
    const json* required = k.take("required");
    const json* others = k.take("additionalProperties");
    const Part begin = grammar_.text("{"), end = grammar_.text("}");
    const bool listed = properties && !properties->empty();
    if (properties && !properties->is_object()) k.fail("'properties' must be an object of schemas");
    const std::vector<std::string> names = names_required(k, required);
    if (!listed) {
      if (!names.empty()) k.fail("'required' names '" + names[0] + "', which is not among 'properties'");
      if (others && *others == json(false)) return text_.list(begin, begin, end, 0, 0);
      const bool any = !others || *others == json(true);
      const Part value = any ? text_.value() : of(*others, k.where() + "/additionalProperties", depth + 1);
      return text_.list(begin, text_.member(text_.string(), value), end, 0, Grammar::kUnbounded);
    }
    return members(k, *properties, names, depth);
  }

  std::vector<std::string> names_required(const Keywords& k, const json* required) {
    std::vector<std::string> names;
    if (!required) return names;
    if (!required->is_array() || required->size() > std::size_t(kMostSchemas))
      k.fail("'required' must be a list of at most " + std::to_string(kMostSchemas) + " names");
    std::set<std::string> seen;
    for (const json& name : *required) {
      if (!name.is_string()) k.fail("'required' must be a list of names");
      if (seen.insert(name.get<std::string>()).second) names.push_back(name.get<std::string>());
    }
    return names;
  }

  // The listed properties, each once. rest[first]: what follows, where none was written before or where one was.
  Part members(const Keywords& k, const json& properties, std::vector<std::string> names, int depth) {
    const std::size_t required = names.size();
    for (const std::string& name : names)
      if (!properties.contains(name)) k.fail("'required' names '" + name + "', which is not among 'properties'");
    const std::set<std::string> first_ones(names.begin(), names.end());
    for (const auto& [name, schema] : properties.items())
      if (!first_ones.contains(name)) names.push_back(name);
    if (names.size() > std::size_t(kMostSchemas)) k.fail("'properties' has more than " + std::to_string(kMostSchemas));
    const Part nothing = grammar_.text("");
    Part rest[2] = {nothing, nothing};
    for (std::size_t i = names.size(); i-- > 0;) {
      const Part value = of(properties.at(names[i]), k.where() + "/properties/" + names[i], depth + 1);
      const Part member = text_.member(grammar_.text(json(names[i]).dump()), value), later = rest[0];
      for (const int first : {1, 0}) {
        const Part here = grammar_.sequence(first != 0 ? std::vector<Part>{member, later}
                                                       : std::vector<Part>{text_.comma(), member, later});
        const Part rule = grammar_.rule();  // used by two: as rules they are written once
        grammar_.define(rule, i < required ? here : grammar_.choice({here, rest[first]}));
        rest[first] = rule;
      }
    }
    return grammar_.sequence({grammar_.text("{"), text_.space(), rest[1], text_.space(), grammar_.text("}")});
  }

  Grammar& grammar_;
  JsonText text_;
  const json& root_;
  std::map<std::string, Part> references_;
  int made_ = 0;
};

}  // namespace

Part json_object_part(Grammar& grammar) {
  JsonText text(grammar);
  return grammar.sequence({text.space(), text.object()});
}

Part json_schema_part(Grammar& grammar, const json& schema) { return Schemas(grammar, schema).document(); }

}  // namespace foretoken

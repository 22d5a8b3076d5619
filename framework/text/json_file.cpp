#include "framework/text/json_file.h"

#include <cmath>
#include <unordered_set>
#include <vector>

#include "framework/text/regular_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

std::string absence_of(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return "does not exist; check the path";
  if (error == std::errc::too_many_symbolic_link_levels)
    return "is a loop of symbolic links; make the link point to a file";
  return error ? "cannot be reached (" + error.message() + "); check the path and its permissions" : "";
}

bool has_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::symlink_status(path, ignored).type() != std::filesystem::file_type::not_found;
}

void expect_model_directory(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return;
  const bool loop = error == std::errc::too_many_symbolic_link_levels;
  throw Error(
      "the model directory " + path.string() + (loop ? " is a loop of symbolic links" : " does not exist") +
      "; give the path of a directory with config.json, model.safetensors and tokenizer.json, or of a .gguf file");
}

std::string read_file(const std::filesystem::path& file) {
  if (const std::string why = absence_of(file); !why.empty()) throw Error(file.string() + " " + why);
  std::string text = read_bytes(file, file.string(), "check the path and its permissions");
  if (text.empty()) throw Error(file.string() + " is empty; replace it by a whole one");
  return text;
}

namespace {

// Values are written and destroyed recursively: a file of a million brackets must not overflow the stack.
void check_depth(std::string_view text, const std::string& where) {
  constexpr int kDeepest = 200;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest)
        throw Error(where + " nests deeper than " + std::to_string(kDeepest) +
                    " levels, which nothing that is read here does; correct or replace it");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace

json parse_json(std::string_view text, const std::string& where) {
  check_depth(text, where);
  std::vector<std::unordered_set<std::string>> seen;  // keys of the objects that are open
  const auto watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end) seen.pop_back();
    if (event == json::parse_event_t::key && !seen.back().insert(value.get<std::string>()).second)
      throw Error(where + " has the key '" + value.get<std::string>() +
                  "' twice; JSON does not define which of them counts: correct or replace it");
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& e) {
    throw Error(where + " is not valid JSON (" + reason_of(e) + "); correct or replace it");
  }
}

json read_json(const std::filesystem::path& file) { return parse_json(read_file(file), file.string()); }

std::string reason_of(const json::exception& e) {
  std::string what = e.what();
  if (const auto end = what.find("] "); end != std::string::npos) what = what.substr(end + 2);
  return what.size() > 200 ? what.substr(0, 200) + "..." : what;
}

std::string shown(const json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>()))  // JSON has no word for it
    return std::isnan(value.get<double>()) ? "nan" : value.get<double>() > 0 ? "inf" : "-inf";
  std::string s = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return s.size() <= 60 ? s : s.substr(0, 57) + "...";
}

Fields::Fields(const json& object, std::string where, std::string prefix)
    : object_(&object), where_(std::move(where)), prefix_(std::move(prefix)) {
  if (!object.is_object())
    throw Error(where_ + ": " + (prefix_.empty() ? "the top level" : prefix_) + " is " + shown(object) +
                ", but must be a JSON object");
  if (!prefix_.empty()) prefix_ += ".";
}

const json* Fields::find(const char* key) const {
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

const json& Fields::at(const char* key) const {
  const json* value = find(key);
  if (!value) throw Error(where_ + " has no '" + name(key) + "'; add it, or replace the file");
  return *value;
}

void Fields::refuse(const char* key, const std::string& why) const {
  const json* value = find(key);
  throw Error(where_ + ": '" + name(key) + "' is " + (value ? shown(*value) : "absent") + ", but " + why);
}

std::optional<int> integer_in(const json& value, int least, int most) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t(INT64_MAX)))
    return std::nullopt;
  const auto n = value.get<std::int64_t>();
  return n < least || n > most ? std::nullopt : std::optional(int(n));
}

int Fields::integer(const char* key, int least, int most) const {
  const std::optional<int> value = integer_in(at(key), least, most);
  if (!value) refuse(key, "must be an integer from " + std::to_string(least) + " to " + std::to_string(most));
  return *value;
}

int Fields::integer_or(const char* key, int least, int most, int otherwise) const {
  return has(key) ? integer(key, least, most) : otherwise;
}

double Fields::positive(const char* key) const {
  const json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0)
    refuse(key, "must be a number above 0");
  return value.get<double>();
}

double Fields::positive_or(const char* key, double otherwise) const { return has(key) ? positive(key) : otherwise; }

bool Fields::boolean_or(const char* key, bool otherwise) const {
  const json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_boolean()) refuse(key, "must be true or false");
  return value->get<bool>();
}

std::string Fields::string(const char* key) const {
  const json& value = at(key);
  if (!value.is_string()) refuse(key, "must be a string");
  return value.get<std::string>();
}

std::string Fields::string_or(const char* key, std::string otherwise) const {
  return has(key) ? string(key) : otherwise;
}

const json& Fields::array(const char* key) const {
  const json& value = at(key);
  if (!value.is_array()) refuse(key, "must be an array");
  return value;
}

Fields Fields::object(const char* key) const { return Fields(at(key), where_, name(key)); }

}  // namespace foretoken

// Reads JSON from a user or a download, and its fields by type. Whatever is wrong becomes one sentence that names the
// file, the key, the value and the remedy. This module must not know what the keys mean.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace foretoken {

// Why nothing can be read at a path, as the end of a sentence that begins with the path: "does not exist", "is a loop
// of symbolic links: ...". Empty where something exists.
std::string absence_of(const std::filesystem::path& path);
// Whether something of this name exists, even a dangling link: opening it then gives the Error that explains it.
bool has_file(const std::filesystem::path& path);
// An Error unless the path is a directory.
void expect_model_directory(const std::filesystem::path& path);
// The whole file as bytes. A missing, unreadable or empty file, or one that is no regular file, is an Error.
std::string read_file(const std::filesystem::path& file);
// `where` names the source in messages. An object that has a key twice is an Error (JSON does not define which value
// counts). Numbers, strings, nesting up to 200 levels: whatever RFC 8259 allows.
nlohmann::json parse_json(std::string_view text, const std::string& where);
nlohmann::json read_json(const std::filesystem::path& file);
// The message of such an exception, without the library's "[json.exception.type_error.302] ".
std::string reason_of(const nlohmann::json::exception& e);
// The value of an integer within [least, most], however large it is; absent for anything else.
std::optional<int> integer_in(const nlohmann::json& value, int least, int most);
// A value for a message: its JSON, cut to 60 bytes.
std::string shown(const nlohmann::json& value);

// A JSON object and where it is, for messages: `where` is a file, `prefix` the path of the object in it. A key whose
// value is null counts as absent, as in Transformers. Every accessor throws Error on a missing key or a value of
// another type.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string where, std::string prefix = "");

  const nlohmann::json* find(const char* key) const;  // null if absent or JSON null
  bool has(const char* key) const { return find(key) != nullptr; }
  // An integer within [least, most].
  int integer(const char* key, int least, int most) const;
  int integer_or(const char* key, int least, int most, int otherwise) const;
  // A finite number > 0.
  double positive(const char* key) const;
  double positive_or(const char* key, double otherwise) const;
  bool boolean_or(const char* key, bool otherwise) const;
  std::string string(const char* key) const;
  std::string string_or(const char* key, std::string otherwise) const;
  const nlohmann::json& array(const char* key) const;
  Fields object(const char* key) const;

  std::string name(const char* key) const { return prefix_ + key; }
  const std::string& where() const { return where_; }
  const nlohmann::json& all() const { return *object_; }
  // Throws: "WHERE: PREFIX.KEY is VALUE, but WHY".
  [[noreturn]] void refuse(const char* key, const std::string& why) const;

 private:
  const nlohmann::json& at(const char* key) const;

  const nlohmann::json* object_;
  std::string where_, prefix_;
};

}  // namespace foretoken

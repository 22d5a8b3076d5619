// Options of a JSON object by type. Every accessor throws an ApiError that names the key, and what is left over is
// refused with the nearest known name. This module must not know what the options mean.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken::serve {

class RequestBody {
 public:
  // `prefix`: the path of the object in the request, for messages ("stream_options.").
  explicit RequestBody(const nlohmann::json& object, std::string prefix = "");

  // Null where it is absent or null. From now on it is known.
  const nlohmann::json* find(const char* key);
  bool boolean(const char* key, bool otherwise);
  double number(const char* key, double least, double most, double otherwise);
  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most, std::int64_t otherwise);
  std::string string(const char* key, const std::string& otherwise = "");
  // An ApiError where it is given, and is not `harmless`.
  void refuse(const char* key, const std::string& why, const nlohmann::json& harmless = nullptr);
  // An ApiError where a key was not asked for.
  void expect_nothing_else() const;
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;

 private:
  const nlohmann::json& object_;
  std::string prefix_;
  std::vector<std::string> known_;
};

}  // namespace foretoken::serve

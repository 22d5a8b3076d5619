#include "experiments/serve/request_body.h"

#include <algorithm>
#include <cmath>

#include "experiments/serve/api_error.h"
#include "framework/text/json_file.h"
#include "framework/text/known_names.h"

namespace foretoken::serve {

using nlohmann::json;

namespace {

// 3, 0.5, 1e+300.
std::string number_text(double x) {
  return std::abs(x) < 1e15 && x == std::trunc(x) ? std::to_string(std::int64_t(x)) : json(x).dump();
}

}  // namespace

RequestBody::RequestBody(const json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {
  if (!object_.is_object())
    throw ApiError(400,
                   (prefix_.empty() ? "the body" : "'" + prefix_.substr(0, prefix_.size() - 1) + "'") +
                       " must be a JSON object, not " + shown(object_),
                   prefix_.empty() ? "" : prefix_.substr(0, prefix_.size() - 1));
}

void RequestBody::fail(const std::string& key, const std::string& what) const {
  throw ApiError(400, "'" + prefix_ + key + "' " + what, prefix_ + key);
}

const json* RequestBody::find(const char* key) {
  known_.emplace_back(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool RequestBody::boolean(const char* key, bool otherwise) {
  const json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_boolean()) fail(key, "must be true or false, not " + shown(*value));
  return *value;
}

double RequestBody::number(const char* key, double least, double most, double otherwise) {
  const json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most))
    fail(key, "must be a number from " + number_text(least) + " to " + number_text(most) + ", not " + shown(*value));
  return *value;
}

std::int64_t RequestBody::integer(const char* key, std::int64_t least, std::int64_t most, std::int64_t otherwise) {
  const json* value = find(key);
  if (!value) return otherwise;
  const auto whole = [&] {
    if (!value->is_number() || (value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t(most)))
      return false;
    const double x = *value;
    return x == std::trunc(x) && x >= double(least) && x <= double(most);
  };
  if (!whole())
    fail(key,
         "must be an integer from " + std::to_string(least) + " to " + std::to_string(most) + ", not " + shown(*value));
  return *value;
}

std::string RequestBody::string(const char* key, const std::string& otherwise) {
  const json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_string()) fail(key, "must be a string, not " + shown(*value));
  return *value;
}

void RequestBody::refuse(const char* key, const std::string& why, const json& harmless) {
  if (const json* value = find(key); value && *value != harmless) fail(key, why);
}

void RequestBody::expect_nothing_else() const {
  for (const auto& [key, value] : object_.items())
    if (std::ranges::find(known_, key) == known_.end())
      fail(key.substr(0, 60), "is no option here" + suggestion(key.substr(0, 60), known_) + "; leave it out");
}

}  // namespace foretoken::serve

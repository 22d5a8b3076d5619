#include "experiments/serve/api_error.h"

namespace foretoken::serve {

using nlohmann::json;

namespace {

const char* type_of(int status) {
  if (status == 401 || status == 403) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

}  // namespace

json document_of(const ApiError& error) {
  return {{"error",
           {{"message", error.what()},
            {"type", type_of(error.status)},
            {"param", or_null(error.parameter)},
            {"code", or_null(error.code)}}}};
}

std::string text_of(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace foretoken::serve

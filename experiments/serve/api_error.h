// What a client is told of a request that is not served: a status of HTTP, and one sentence in the form that clients of
// OpenAI's API read. This module must not know connections or engines.
#pragma once
#include <optional>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

namespace foretoken::serve {

struct ApiError : std::runtime_error {
  // `parameter`: the key of the request that is at fault; empty: none. `code`: "model_not_found", ...; empty: none.
  ApiError(int status, const std::string& sentence, std::string parameter = "", std::string code = "")
      : std::runtime_error(sentence), status(status), parameter(std::move(parameter)), code(std::move(code)) {}

  int status;
  std::string parameter, code;
  std::optional<int> retry_after = {};  // seconds, for the header of that name
};

// {"error": {"message", "type", "param", "code"}}.
nlohmann::json document_of(const ApiError& error);
// As a text, whatever bytes a sentence quotes.
std::string text_of(const nlohmann::json& document);

}  // namespace foretoken::serve

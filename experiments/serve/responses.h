// Texts of HTTP, and which paths there are. This module must not know sockets or engines.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken::serve {

inline constexpr const char* kJson = "application/json";

struct ResponseHead {
  int status = 200;
  std::string type = kJson;
  std::string id = {};                  // of the request
  bool keep = false;                    // the connection
  bool old = false;                     // HTTP/1.0
  std::optional<int> retry_after = {};  // seconds
};
std::string response_of(const ResponseHead& head, const std::string& body);
// Of a stream of events; `chunked`: HTTP/1.1.
std::string stream_head(const std::string& id, bool keep, bool chunked);
std::string chunk_of(const std::string& bytes);

// An ApiError, 404 or 405, unless the path is served by this method.
void expect_route(std::string_view method, const std::string& path);
// "completions", "chat", "models", "health", "metrics" or "other".
const char* endpoint_of(const std::string& path);

// An ApiError, 421, unless the header Host is empty or names this machine to itself ("localhost", "127.0.0.1:8000"), by
// an address, or by one of `names`: a page in a browser here could else have a name of its own point to this server.
void expect_host(std::string_view host, const std::vector<std::string>& names);

// An ApiError, 404, unless `asked` is empty or the one that is served.
void expect_model(const std::string& asked, const std::string& served);
// The list of models, or `alone` the one.
std::string models_document(const std::string& name, bool alone);

}  // namespace foretoken::serve

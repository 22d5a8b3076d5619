#include "experiments/serve/responses.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/status.hpp>

#include "experiments/serve/api_error.h"

namespace foretoken::serve {

using nlohmann::json;

namespace {

struct Route {
  const char *method, *path, *endpoint;
};

constexpr std::array<Route, 5> kRoutes{{{"POST", "/v1/completions", "completions"},
                                        {"POST", "/v1/chat/completions", "chat"},
                                        {"GET", "/v1/models", "models"},
                                        {"GET", "/health", "health"},
                                        {"GET", "/metrics", "metrics"}}};

const Route* route_of(const std::string& path) {
  const std::string of = path.starts_with("/v1/models/") ? "/v1/models" : path;
  const auto found = std::ranges::find(kRoutes, of, &Route::path);
  return found == kRoutes.end() ? nullptr : &*found;
}

std::string common_head(const std::string& id, bool keep) {
  return "Server: foretoken\r\nX-Request-Id: " + id + "\r\nConnection: " + (keep ? "keep-alive" : "close") + "\r\n";
}

}  // namespace

std::string response_of(const ResponseHead& head, const std::string& body) {
  const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(head.status));
  std::string bytes = (head.old ? "HTTP/1.0 " : "HTTP/1.1 ") + std::to_string(head.status) + " " +
                      std::string(reason.data(), reason.size()) + "\r\nContent-Type: " + head.type +
                      "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + common_head(head.id, head.keep);
  if (head.status == 401) bytes += "WWW-Authenticate: Bearer\r\n";
  if (head.retry_after) bytes += "Retry-After: " + std::to_string(*head.retry_after) + "\r\n";
  return bytes + "\r\n" + body;
}

std::string stream_head(const std::string& id, bool keep, bool chunked) {
  return (chunked ? "HTTP/1.1" : "HTTP/1.0") +
         std::string(" 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n") +
         (chunked ? "Transfer-Encoding: chunked\r\n" : "") + common_head(id, keep) + "\r\n";
}

std::string chunk_of(const std::string& bytes) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return size + bytes + "\r\n";
}

void expect_route(std::string_view method, const std::string& path) {
  const Route* route = route_of(path);
  if (!route)
    throw ApiError(404, "there is nothing at '" + path.substr(0, 200) +
                            "'; there are /v1/completions, /v1/chat/completions, /v1/models, /health and /metrics");
  if (method != route->method)
    throw ApiError(405, std::string(route->path) + " takes the method " + route->method + " alone");
}

void expect_host(std::string_view host, const std::vector<std::string>& names) {
  const std::size_t bracket = host.find(']'), colon = host.rfind(':');
  std::string_view name = host;
  if (host.starts_with('[') && bracket != host.npos)
    name = host.substr(1, bracket - 1);
  else if (colon != host.npos)
    name = host.substr(0, colon);
  boost::system::error_code failed;
  const auto address = boost::asio::ip::make_address(std::string(name), failed);
  const auto is = [&](const std::string& other) {
    return boost::beast::iequals({name.data(), name.size()}, other) ||
           boost::beast::iequals({host.data(), host.size()}, other);
  };
  if (host.empty() || (!failed && !address.is_unspecified()) || is("localhost") || std::ranges::any_of(names, is))
    return;
  throw ApiError(421, "this server has other names than '" + std::string(host.substr(0, 200)) +
                          "', which the header Host has; whoever starts it allows a name with --allow-host");
}

const char* endpoint_of(const std::string& path) {
  const Route* route = route_of(path);
  return route ? route->endpoint : "other";
}

void expect_model(const std::string& asked, const std::string& served) {
  if (!asked.empty() && asked != served)
    throw ApiError(404, "the model '" + asked.substr(0, 200) + "' is not served here, but '" + served + "'", "model",
                   "model_not_found");
}

std::string models_document(const std::string& name, bool alone) {
  static const std::int64_t started = std::time(nullptr);
  const json model{{"id", name}, {"object", "model"}, {"created", started}, {"owned_by", "foretoken"}};
  return text_of(alone ? model : json{{"object", "list"}, {"data", json::array({model})}});
}

}  // namespace foretoken::serve

#include "experiments/serve/gateway.h"

#include <algorithm>

#include <sys/resource.h>

#include "kernels/error.h"

namespace foretoken::serve {
namespace {

std::string milliseconds(double seconds) { return std::to_string(std::max(1L, long(1000 * seconds))) + "ms"; }

// Whether it has none of a configuration's own letters.
bool has_letters_of_addresses(const std::string& text) {
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") == text.npos;
}

// HAProxy takes two descriptors for each, and does not start where it cannot have them.
long most_connections() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max == RLIM_INFINITY) return 8192;
  return std::clamp((long(std::min<rlim_t>(files.rlim_max, 1 << 20)) - 128) / 2, 16L, 8192L);
}

// HOST:PORT of what is given.
std::string address_of(const std::string& replica) {
  std::string address = replica.starts_with("http://") ? replica.substr(7) : replica;
  while (address.ends_with('/')) address.pop_back();
  if (address.ends_with("/v1")) address.resize(address.size() - 3);
  const std::size_t colon = address.rfind(':');
  const std::string port = colon == address.npos ? "" : address.substr(colon + 1);
  if (!has_letters_of_addresses(address) || colon == 0 || port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != port.npos || std::stoi(port) < 1 || std::stoi(port) > 65535)
    throw Error("the replica '" + replica + "' is no address; write HOST:PORT or http://HOST:PORT");
  return address;
}

std::string lines_of_servers(const GatewayOptions& o) {
  std::string text;
  for (std::size_t i = 0; i < o.replicas.size(); ++i)
    text += "  server replica" + std::to_string(i + 1) + " " + address_of(o.replicas[i]) + "\n";
  if (o.metrics_port > 0)
    text += "\nfrontend figures\n  bind 127.0.0.1:" + std::to_string(o.metrics_port) +
            "\n  http-request use-service prometheus-exporter if { path /metrics }\n"
            "  http-request deny deny_status 404\n";
  return text;
}

}  // namespace

std::string haproxy_configuration(const GatewayOptions& o) {
  if (o.replicas.empty()) throw Error("a gateway needs replicas; give their addresses with --replicas HOST:PORT,...");
  if (o.host.empty() || !has_letters_of_addresses(o.host))
    throw Error("'" + o.host + "' is no address to listen at; give one with --host, as 127.0.0.1");
  std::string text =
      "# Written by foretoken gateway.\n"
      "global\n"
      "  log stderr format raw local0\n"
      "  maxconn " +
      std::to_string(most_connections()) +
      "\n"
      "  tune.bufsize " +
      std::to_string(o.body_bytes) +
      "  # a request that fits can be sent again\n"
      "\n"
      "defaults\n"
      "  mode http\n"
      "  log global\n"
      "  option dontlognull\n"
      "  option httplog\n"
      "  option redispatch 1\n"
      "  retries 3\n"
      "  retry-on conn-failure empty-response\n"
      "  timeout connect 1s\n"
      "  timeout http-request 30s\n"
      "  timeout http-keep-alive 30s\n"
      "  timeout client " +
      milliseconds(o.request_seconds) +
      "\n"
      "  timeout server " +
      milliseconds(o.request_seconds) +
      "\n"
      "  timeout queue " +
      milliseconds(o.queue_seconds) +
      "\n"
      "\n"
      "frontend clients\n"
      "  bind " +
      o.host + ":" + std::to_string(o.port) +
      "\n"
      "  option http-buffer-request  # whole, so that it can be sent again\n"
      "  default_backend replicas\n"
      "\n"
      "backend replicas\n"
      "  balance leastconn\n"
      "  option httpchk GET /health\n"
      "  http-check expect status 200\n"
      "  http-reuse safe\n"
      "  default-server check inter " +
      milliseconds(o.check_seconds) +
      " fall 2 rise 1 observe layer4 error-limit 1 "
      "on-error mark-down" +
      (o.running > 0 ? " maxconn " + std::to_string(o.running) : "") + "\n";
  return text + lines_of_servers(o);
}

}  // namespace foretoken::serve

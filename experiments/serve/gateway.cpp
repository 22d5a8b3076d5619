#include "experiments/serve/gateway.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <sys/resource.h>

#include "experiments/serve/api_error.h"
#include "kernels/error.h"

namespace foretoken::serve {
namespace {

using Servers = std::vector<std::string>;

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

void expect_whole(const GatewayOptions& o) {
  if (o.replicas.empty()) throw Error("a gateway needs replicas; give their addresses with --replicas HOST:PORT,...");
  if (o.host.empty() || !has_letters_of_addresses(o.host))
    throw Error("'" + o.host + "' is no address to listen at; give one with --host, as 127.0.0.1");
  for (const std::string& host : o.hosts)
    if (host.empty() || !has_letters_of_addresses(host))
      throw Error("'" + host + "' is no name of a host; give --allow-host NAME");
  if ((o.route == Route::concurrency) == o.few.empty())
    throw Error("--route concurrency and --few go together: the replicas of --few have few requests, others the rest");
}

std::string globals(const GatewayOptions& o) {
  return "# Written by foretoken gateway.\n"
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
         "  timeout check 2s  # a busy server is late; one that has gone refuses at once\n"
         "  timeout http-request 30s\n"
         "  timeout http-keep-alive 30s\n"
         "  timeout client " +
         milliseconds(o.request_seconds) + "\n  timeout server " + milliseconds(o.request_seconds) +
         "\n  timeout queue " + milliseconds(o.queue_seconds) + "\n\n";
}

// An answer of the gateway's own, in the form of the servers'. Sentences have no apostrophes, which would end them.
std::string refusal(const ApiError& error, const std::string& header, const std::string& condition) {
  return "  http-request return status " + std::to_string(error.status) + " content-type application/json string '" +
         text_of(document_of(error)) + "'" + header + " " + condition + "\n";
}

std::string digits_of(const Hash& hash) {
  std::string digits;
  for (const unsigned char byte : hash) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    digits += two;
  }
  return digits;
}

// Of one name, `who` being the condition under which it is its request.
std::string rate_line(double per_minute, const std::string& who) {
  if (per_minute <= 0) return "";
  const ApiError late(429, "the rate of requests is used up; try again in a minute", "", "rate_limit_exceeded");
  return refusal(
      late, " hdr Retry-After 60",
      "if METH_POST " + who + "{ sc_http_req_rate(0) gt " + std::to_string(std::lround(std::ceil(per_minute))) + " }");
}

std::string key_lines(const Keys& keys) {
  const std::vector<Client>& clients = keys.clients();
  if (!keys.needed()) {
    const double rate = clients.front().rates.requests_per_minute;
    return rate > 0 ? "  http-request track-sc0 src table rates if METH_POST\n" + rate_line(rate, "") : "";
  }
  std::string text =
      "  acl alive path /health\n"
      "  http-request set-var(txn.key) req.hdr(authorization),regsub('^Bearer ',''),sha2(256),hex,lower\n"
      "  acl bearer req.hdr(authorization) -m beg 'Bearer '\n";
  for (const Client& client : clients) text += "  acl known var(txn.key) -m str " + digits_of(client.hash) + "\n";
  text += refusal(
      ApiError(401, "no key that is known here came with the request; send the header Authorization: Bearer KEY", "",
               "invalid_api_key"),
      " hdr WWW-Authenticate Bearer", "unless alive || bearer known");
  text += "  http-request track-sc0 var(txn.key) table rates if METH_POST\n";
  for (const Client& client : clients)
    text += rate_line(client.rates.requests_per_minute, "{ var(txn.key) -m str " + digits_of(client.hash) + " } ");
  return text;
}

std::string frontend(const GatewayOptions& o, const Keys& keys) {
  std::string text = "frontend clients\n  bind " + o.host + ":" + std::to_string(o.port) +
                     "\n"
                     "  option http-buffer-request  # whole, so that it can be sent again\n";
  if (o.connections_per_address > 0)
    text +=
        "  tcp-request connection track-sc1 src table addresses\n"
        "  tcp-request connection reject if { sc_conn_cur(1) gt " +
        std::to_string(o.connections_per_address) + " }\n";
  if (!keys.needed()) {  // a page in a browser could else have a name of its own point here
    text +=
        "  acl own_host req.hdr(host),lower -m reg '^(localhost|[0-9]+([.][0-9]+){3}|[[][0-9a-f:.]+[]])(:[0-9]+)?$'\n";
    for (const std::string& host : o.hosts)
      text += "  acl own_host req.hdr(host),lower,regsub(':[0-9]*$','') -m str -i " + host + "\n";
    text += refusal(ApiError(421, "the gateway has other names than the header Host has; --allow-host allows one"), "",
                    "if { req.hdr(host) -m found } !own_host");
    text += "  acl any_host req.hdr(host) -m beg 0.0.0.0 [::]\n";
    text += refusal(ApiError(421, "the gateway has other names than the header Host has; --allow-host allows one"), "",
                    "if any_host");
  }
  text += key_lines(keys) + "  http-request set-header Host localhost  # which every server takes\n";
  if (o.route == Route::concurrency)
    text += "  use_backend few if { be_conn(few) lt " + std::to_string(o.few_requests) + " } { nbsrv(few) gt 0 }\n";
  return text + "  default_backend replicas\n\n";
}

std::string balance_lines(const GatewayOptions& o) {
  if (o.route != Route::prefix) return "  balance leastconn\n";
  // Of a conversation its first two messages, of which the first is often the same for all. A list of prompts has none,
  // and goes to any replica. One with half as many requests again as the others is passed over.
  return "  http-request set-var(txn.text) req.body,json_query('$.prompt')\n"
         "  http-request set-var(txn.first) req.body,json_query('$.messages[0].content')\n"
         "  http-request set-var(txn.second) req.body,json_query('$.messages[1].content')\n"
         "  http-request set-var(txn.text) var(txn.first),concat(,txn.second,) unless { var(txn.text) -m found }\n"
         "  balance hash var(txn.text),bytes(0," +
         std::to_string(o.prefix_bytes) +
         ")\n"
         "  hash-type consistent sdbm avalanche\n"
         "  hash-balance-factor 150\n";
}

// `behind`: servers that take its requests when none of its own can.
std::string backend(const std::string& name, const Servers& servers, const Servers& behind, const GatewayOptions& o) {
  std::string text = "backend " + name + "\n" + balance_lines(o) +
                     "  option httpchk GET /health\n"
                     "  http-check expect status 200\n"
                     "  http-reuse safe\n"
                     "  default-server check inter " +
                     milliseconds(o.check_seconds) + " fall 2 rise 1 observe layer4 error-limit 1 on-error mark-down" +
                     (o.running > 0 ? " maxconn " + std::to_string(o.running) : "") + "\n";
  if (!behind.empty()) text += "  option allbackups\n";
  for (std::size_t i = 0; i < servers.size(); ++i)
    text += "  server replica" + std::to_string(i + 1) + " " + address_of(servers[i]) + "\n";
  for (std::size_t i = 0; i < behind.size(); ++i)
    text += "  server other" + std::to_string(i + 1) + " " + address_of(behind[i]) + " backup\n";
  return text + "\n";
}

// Counts that are no servers'.
std::string tables(const GatewayOptions& o) {
  std::string text = "backend rates\n  stick-table type string len 64 size 100k expire 2m store http_req_rate(1m)\n\n";
  if (o.connections_per_address > 0)
    text += "backend addresses\n  stick-table type ipv6 size 100k expire 2m store conn_cur\n\n";
  return text;
}

}  // namespace

std::string haproxy_configuration(const GatewayOptions& o, const Keys& keys) {
  expect_whole(o);
  std::string text = globals(o) + frontend(o, keys) + backend("replicas", o.replicas, o.few, o);
  if (!o.few.empty()) text += backend("few", o.few, o.replicas, o);
  text += tables(o);
  if (o.metrics_port > 0)
    text += "frontend figures\n  bind 127.0.0.1:" + std::to_string(o.metrics_port) +
            "\n  http-request use-service prometheus-exporter if { path /metrics }\n"
            "  http-request deny deny_status 404\n";
  return text;
}

}  // namespace foretoken::serve

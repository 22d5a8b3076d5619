// A gateway before several servers, which is HAProxy: this writes its configuration. Nothing of ours lies between a
// client and a replica. This module must not know servers.
#pragma once
#include <string>
#include <vector>

#include "experiments/serve/keys.h"

namespace foretoken::serve {

// Which replica is next.
enum class Route {
  least,   // the one with the fewest requests
  prefix,  // the one that had the prompt's first bytes before, whose cache has them, unless it has too many requests
  concurrency  // GatewayOptions::few as long as these have few requests, else the others
};

struct GatewayOptions {
  std::vector<std::string> replicas = {};  // HOST:PORT, or http://HOST:PORT
  std::string host = "127.0.0.1";
  int port = 8080;
  int metrics_port = 0;  // of the gateway's own figures for Prometheus, on loopback; 0: none
  Route route = Route::least;
  std::vector<std::string> few = {};  // replicas for few requests: those of tensor parallelism (Route::concurrency)
  int few_requests = 4;               // that all of these have at most
  int prefix_bytes = 256;             // of a prompt, by which a replica is chosen (Route::prefix)
  int running = 0;                    // requests of one replica at once; further ones wait in the gateway; 0: no limit
  int connections_per_address = 0;    // 0: no limit
  std::vector<std::string> hosts = {};  // names in the header Host, beside loopback's and addresses
  double request_seconds = 600;         // until the first byte, and between two
  double queue_seconds = 60;            // that a request waits for a replica
  double check_seconds = 0.5;           // between two health checks of a replica
  std::size_t body_bytes = 256 << 10;   // of a request that can be moved to another replica
};

// The configuration of HAProxy 2.6 or newer. A replica that does not answer /health is left out; a request of which no
// byte was answered moves to another one. Keys, and requests a minute of each, are checked as the servers check theirs,
// but that refused requests count; where `keys` needs none, requests have a rate by address. A replica that is no
// address is an Error.
std::string haproxy_configuration(const GatewayOptions& options, const Keys& keys = Keys());

}  // namespace foretoken::serve

// A gateway before several servers, which is HAProxy: this writes its configuration. Nothing of ours lies between a
// client and a replica. This module must not know servers.
#pragma once
#include <string>
#include <vector>

namespace foretoken::serve {

struct GatewayOptions {
  std::vector<std::string> replicas = {};  // HOST:PORT, or http://HOST:PORT
  std::string host = "127.0.0.1";
  int port = 8080;
  int metrics_port = 0;                // of the gateway's own figures for Prometheus, on loopback; 0: none
  int running = 0;                     // requests of one replica at once; further ones wait in the gateway; 0: no limit
  double request_seconds = 600;        // until the first byte, and between two
  double queue_seconds = 60;           // that a request waits for a replica
  double check_seconds = 0.5;          // between two health checks of a replica
  std::size_t body_bytes = 256 << 10;  // of a request that can be moved to another replica
};

// The configuration of HAProxy 2.4 or newer: the replica with the fewest requests is next; one that does not answer
// /health is left out; a request of which no byte was answered moves to another one. A replica that is no address is an
// Error.
std::string haproxy_configuration(const GatewayOptions& options);

}  // namespace foretoken::serve

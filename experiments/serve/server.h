// An HTTP server of OpenAI's API over one model (Boost.Beast: one thread drives all sockets, since a thread for each of
// 512 streams, as cpp-httplib has it, would take the processor from the engine's). This module must not know the
// command line.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "experiments/serve/access_log.h"
#include "experiments/serve/content_filter.h"
#include "experiments/serve/keys.h"
#include "experiments/serve/metrics.h"
#include "experiments/serve/served_model.h"

namespace foretoken::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address, or a name of one
  int port = 8000;                 // 0: any that is free
  std::string name = {};           // of the model, for clients; empty: ServedModel::name
  std::vector<std::string> hosts =
      {};                          // names in the header Host, beside loopback's and addresses, where no key is asked
  std::size_t connections = 2048;  // open at once; further ones wait until one ends
  std::size_t body_bytes = 2 << 20;
  ContentFilter* filter = nullptr;  // of prompts and outputs; stops with the server; null: none
  std::size_t filter_bytes = 256;   // of a streamed output, after so many of which it is judged, and sent then
  double read_seconds = 30;         // for a request to arrive, and between two of one connection
  double write_seconds = 30;        // for a client to take what was written
  double request_seconds = 600;     // from a request's arrival to its end
  double drain_seconds = 30;        // that running requests have once the server is told to end
};

class Server {
 public:
  // Binds and listens; an address that cannot be had is an Error. All arguments outlive the server.
  Server(ServedModel& model, Keys& keys, Metrics& metrics, AccessLog& log, const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8000"
  // From now on SIGTERM and SIGINT end it as stop() does; the second one at once.
  void watch_signals();
  // Serves until stop() has been called and running requests have ended, or drain_seconds have passed.
  void run();
  // Takes no more connections, nor requests of those that are open. From any thread.
  void stop();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace foretoken::serve

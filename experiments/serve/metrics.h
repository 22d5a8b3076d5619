// What Prometheus is told of a server: latencies, load, cache, and speculation, in its text format. Any thread may call
// it. This module must not know connections.
#pragma once
#include <memory>
#include <string>

#include "framework/components/step_report.h"

namespace foretoken::serve {

class Metrics {
 public:
  // `model`: a label of everything.
  explicit Metrics(const std::string& model);
  ~Metrics();

  // Of the loop's thread, after each step.
  void observe(const StepReport& report);
  // Of a request: seconds from its arrival to its first token; seconds per token between two rounds of an output, which
  // counts for each of `tokens`; seconds to its end.
  void first_token(double seconds);
  void between_tokens(double seconds, int tokens);
  // `endpoint`: "completions", "chat", ...; `status`: of HTTP.
  void answered(const std::string& endpoint, int status, double seconds);
  // "queue", "requests", "tokens", "key", ...
  void refused(const std::string& why);
  // A request whose client had gone, or was too slow, before its end.
  void dropped();

  // What is set when it is read.
  struct State {
    std::size_t waiting = 0, running = 0, connections = 0;
    int pages = 0;
  };
  std::string text(const State& state);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace foretoken::serve

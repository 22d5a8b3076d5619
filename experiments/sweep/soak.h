// `foretoken bench --soak RUN.json`, an endurance test: thousands of requests queued at once, served by one engine to
// the end. Memory and the time of a step must not grow. This module must not know how a request is served.
#pragma once
#include <string>

namespace foretoken {

struct SoakOptions {
  std::string file;      // one run as JSON, as for `foretoken run` without axes
  int requests = 10000;  // queued at once: the run's prompts repeated, each request with its own draws
  std::string results;   // a JSON line is appended here; empty: nowhere
  bool json = false;     // print that line instead of a table
};

// Prints a row for each twentieth of the requests; returns an exit code.
int run_soak(const SoakOptions& options);

}  // namespace foretoken

// Endurance: thousands of requests queued at once, served by one engine to the end. Memory and the time of a step have
// to stay what they were at the beginning. `foretoken bench --soak RUN.json`. This module must not know how a request
// is served.
#pragma once
#include <string>

namespace foretoken {

struct SoakOptions {
  std::string file;      // one run as JSON, as for `foretoken run` without axes
  int requests = 10000;  // queued at once: the run's prompts again and again, each with draws of its own
  std::string results;   // a JSON line is appended here; empty: nowhere
  bool json = false;     // print that line instead of a table
};

// Prints a row for each twentieth of the requests; returns an exit code.
int run_soak(const SoakOptions& options);

}  // namespace foretoken

// `foretoken bench --steps FILE`: the time of engine steps on a device (decode steps, verification of several rows,
// whole rounds, prompts), with models of published shapes, beside their roofline. This module must not know how any
// operation is computed.
#pragma once
#include <string>

namespace foretoken {

struct StepsOptions {
  std::string file;     // of scenarios; see bench_scenarios.h and experiments/configs/steps.json
  std::string only;     // scenarios whose name contains this
  std::string device;   // instead of the file's
  std::string results;  // JSON lines are appended here; empty: nowhere
  bool json = false;    // print JSON lines instead of a table
};

// Prints to standard output; returns an exit code: 0, or 1 if a scenario could not be measured.
int run_steps(const StepsOptions& options);

}  // namespace foretoken

// `foretoken generate`: continues one prompt, streams the output and marks accepted draft tokens. This module must not
// know how engines work.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken {

struct GenerateOptions {
  nlohmann::json run;  // of a run: target, drafter, policy, verifier, sampling, engine, workload (but for its prompts)
  std::vector<std::string> plugins;
  std::string prompt;  // "-": read from standard input
  // Brackets around accepted tokens even if the output is not a terminal. The output's own are escaped: \[ \] \\ there.
  bool marks = false;
  // Instead of the output one JSON object in the end, and no line of figures (experiments/results.md).
  bool json = false;
};

// Writes the output, or JSON, to standard output; to standard error a line for every failed sample and a line of
// figures. Returns an exit code: 1 if a sample failed. If all failed, that is an Error.
int generate(const GenerateOptions& options);

}  // namespace foretoken

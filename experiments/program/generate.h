// `foretoken generate`: one prompt, its text as it comes, accepted draft tokens shown. Knows the terminal, not how
// engines work.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken {

struct GenerateOptions {
  nlohmann::json run;  // of a run: target, drafter, policy, verifier, sampling, engine, workload (but for its prompts)
  std::vector<std::string> plugins;
  std::string prompt;  // "-": read from standard input
  bool marks = false;  // brackets around accepted tokens even where the output is no terminal; \[ \] \\ for those of
                       // the text
};

// Text to standard output, one closing line of figures to standard error. Returns an exit code.
int generate(const GenerateOptions& options);

}  // namespace foretoken

// The sweep whose results a command reads: --sweep, --set and --plugin. This module must not know results.
#pragma once
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "experiments/report/result.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/sweep.h"

namespace foretoken {

struct SweepChoice {
  std::string document;  // empty: none
  std::vector<std::string> set, plugins;

  // All runs of the document; none without one. Its plugins are loaded into the workbench.
  std::vector<Run> runs(Workbench& bench) const;
};
void add_sweep(CLI::App& command, SweepChoice& sweep, const std::string& meaning);

// "policy/length 4, engine/batch 8 (key 0123456789abcdef, measured 2026-11-21T08:00:00Z)": a line of results, for
// messages.
std::string told(const Result& result);

}  // namespace foretoken

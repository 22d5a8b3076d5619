// The scenarios of `foretoken bench --steps FILE`, each a run's models and engine in one state (number of sequences,
// length of context). This module must not know how steps are timed.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken {

struct Scenario {
  std::string name;
  nlohmann::json run;       // complete
  int batch, context;       // sequences at once; tokens of each prompt
  int steps;                // measured
  int guesses;              // arbitrary tokens to verify instead of drafts; 0: the run's drafter drafts
  int children;             // of each guessed node and of the root, breadth first; 1: a chain
  int guessing;             // sequences that guess; the others propose nothing
  bool prompt;              // measures the prompt instead of decoding
  bool attention;           // measures attention of one layer alone, for guesses + 1 rows of each sequence
  int moves;                // measures compaction alone, of so many rows of each sequence; 0: no
  double share;             // of the copy bandwidth that attention alone should reach; 0: none
  double bar_ms, peer_ms;   // the most milliseconds allowed, and those of another program; 0: none
  std::string over = {};    // a scenario before this one, whose time this one's is compared with
  double most = 0;          // of this scenario's time over that one's; 0: not asked for
  double verify_share = 0;  // the most of a step that verification takes; 0: not asked for
  double host_share = 0;    // the same of the host
  double draft_most = 0;    // of the time of drafting over that of its forwards alone; 0: not asked for
};

// The scenarios of FILE, {"engine": {...}, "scenarios": [{"name": ..., "target": {...}, ...}, ...]}, as
// experiments/configs/steps.json: those whose name contains `only`, on `device` unless that is empty. A missing file,
// an unknown key (with the nearest known one), a value of another type or out of range, keys that contradict each
// other, an `over` that names no scenario before its own, and no scenario at all are Errors.
std::vector<Scenario> read_scenarios(const std::string& file, const std::string& only, const std::string& device,
                                     const Registries& registries);

}  // namespace foretoken

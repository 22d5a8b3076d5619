// `foretoken bench --steps FILE`: the time of engine steps on a device (decode steps, verification of several rows,
// whole rounds, prompts), with models of published shapes, beside their roofline. This module must not know how any
// operation is computed.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/session/workbench.h"
#include "framework/components/registry.h"
#include "framework/model/config.h"
#include "framework/model/model.h"
#include "kernels/backend.h"

namespace foretoken {

// A run's models and engine in one state (number of sequences, length of context).
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

// Medians of a scenario; what was not measured is 0.
struct ScenarioTimes {
  double ms = 0, verify_ms = 0, host_ms = 0, draft_ms = 0, draft_forward_ms = 0;
};

// What a scenario's time, the time relative to another scenario's, the shares of verification and of the host, and
// drafting relative to its forwards may be at most.
class ScenarioBars {
 public:
  // Adds what the scenario's bars say to its line, as "bars": [{"bar", "value", "most", "met"}, ...], and returns it as
  // text for its row of the table. A scenario whose `over` was not measured in this call has no such bar.
  std::string judge(const Scenario& scenario, const ScenarioTimes& times, nlohmann::json& line);

 private:
  std::map<std::string, double> ms_;  // of the scenarios judged so far, by name
};

// Attention alone: rotary embedding, cache write and attention of one layer, for the last `rows` rows of each of
// `batch` sequences, whose last row sees `context` slots.
struct AttentionLoad {
  int batch = 1, context = 1, rows = 1;
  LayerShape layer;      // of the cache
  double bytes() const;  // of keys and values of one layer with their scales, each read once: the least traffic
};

// Median seconds of one layer. The layers run one after another on the backend's stream, enough of them that the caches
// no longer hold a layer's pages when it runs again; recorded if the backend records. More rows than `context` are an
// Error.
double attention_seconds(Backend& backend, const ModelConfig& model, const AttentionLoad& load, int repeats);

// The share of `bytes_a_second` that these bytes in `seconds` make.
inline double share_of(double bytes, double seconds, double bytes_a_second) { return bytes / seconds / bytes_a_second; }

// KV compaction alone, as after a step whose trees were accepted off their first branch: `rows` rows move in each of
// `batch` block tables of `context` slots, in all layers of one cache.
struct CompactionLoad {
  int batch = 1, context = 1, rows = 1;
  KvShape cache;
  double bytes() const;  // read and written
};

// Median seconds of one call of Backend::move on the backend's stream. Each call moves rows of other pages than the
// call before. A context without as many rows is an Error.
double compaction_seconds(Backend& backend, const CompactionLoad& load, int repeats);

// A line of results, without machine and date, and what the table says of it.
struct AloneResult {
  double ms = 0;
  nlohmann::json line;
  std::string text;
};

// `model`: the config of the scenario's target. `bytes_a_second`: what the machine copies.
AloneResult measure_attention(const Scenario& scenario, Workbench& bench, const ModelConfig& model,
                              double bytes_a_second);
AloneResult measure_compaction(const Scenario& scenario, Workbench& bench, double bytes_a_second);

struct StepsOptions {
  std::string file;     // of scenarios; see read_scenarios() and experiments/configs/steps.json
  std::string only;     // scenarios whose name contains this
  std::string device;   // instead of the file's
  std::string results;  // JSON lines are appended here; empty: nowhere
  bool json = false;    // print JSON lines instead of a table
};

// Prints to standard output; returns an exit code: 0, or 1 if a scenario could not be measured.
int run_steps(const StepsOptions& options);

}  // namespace foretoken

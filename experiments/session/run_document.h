// One run is one JSON document. This module knows every key of it, its type, unit, range and default; it fills in what
// is left out and refuses what it does not know. It must not know how a run is measured.
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken {

// What a value may be, beside its type.
struct AllowedValues {
  double least = -1e300, most = 1e300;
  bool above = false, below = false;      // `least`, `most` are out of range themselves
  std::vector<std::string> choices = {};  // of a string; empty: any
  bool required = false;                  // must be given
  bool optional = false;                  // null is a value
  bool left_out = false;                  // a complete run lacks it where it is null
};

struct RunKey {
  std::string pointer;  // JSON pointer, "/engine/batch"
  std::string type;     // integer, number, boolean, string, path, strings (a list), component ({"name": ..., options}),
                        // model and shape (as ModelChoice reads them), plugins, biases (an object: number by token id),
                        // trace, list (of what its meaning says)
  nlohmann::json standard;  // the default; null: none
  AllowedValues allowed;
  std::string meaning;  // with unit and range
};

// All keys, in the order of the tables of the documentation.
const std::vector<RunKey>& run_keys();

// "> 0, <= 1", or the choices; empty where everything of the type is allowed.
std::string range_of(const RunKey& key);

// The complete document of a run: defaults filled in, components completed by the registries, whole numbers written as
// integers, so that equal runs are equal text; of the plugins those that a component comes from, with the hash of each.
// An unknown key (with the nearest known one), a missing or ill-typed value or one out of range is an Error that names
// it; `where` names the document.
nlohmann::json complete_run(const nlohmann::json& document, const Registries& registries, const std::string& where);

// The devices among which a run's target is divided, and the groups of them that have different experts.
struct Parallel {
  int tensor = 1, expert = 1;
};
Parallel parallel_of(const nlohmann::json& run);

// Drafters and policies that learn are measured from states that a run names: cold, when they know what their files
// hold; warm, when they have also served the same requests once; others, when they have also served other prompts,
// those that the run's workload leaves out.
// Whether the drafter or the policy of a complete run learns, as far as it shows before models are loaded.
std::optional<bool> learns(const nlohmann::json& run, const Registries& registries);

// "cold", "warm" or "others"; empty where a run does not name the state that it is measured from.
std::string start_of(const nlohmann::json& run);
inline bool knows_others(const nlohmann::json& run) { return start_of(run) == "others"; }
// Whether requests are served before those that are measured.
inline bool is_warm(const nlohmann::json& run) { return start_of(run) == "warm" || knows_others(run); }

// Refuses a run that names a state though nothing learns, whose trace would be of another state than it names, or that
// would meet a prompt again though it is to know others alone.
void expect_start(const nlohmann::json& run, const Registries& registries, const std::string& where);
// The same of a run whose engine says whether anything learns.
void expect_start(const nlohmann::json& run, bool learns);

// An Error unless a trace can have the acceptance of a verifier of this name for nodes that are drawn so.
void expect_followed(const Soundness& soundness, const std::string& name, std::span<const Drawn> drawn);

// What the drafter, the policy and the verifier of a run load and name, in this order.
ComponentFiles component_files(const nlohmann::json& run, const Registries& registries);

// The paths under "plugins" of a run or of the base of a sweep, before it is completed.
std::vector<std::string> plugins_of(const nlohmann::json& document);

// A document as it was written, its keys in their order. A missing file, a syntax error (with line and column) or a key
// that an object has twice is an Error.
nlohmann::ordered_json read_document(const std::filesystem::path& file);

// Every key with type, range, default and meaning: the tables of experiments/keys.md, or lines for a terminal.
std::string describe_keys(const Registries& registries, bool markdown);

}  // namespace foretoken

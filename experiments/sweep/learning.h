// Drafters and policies that learn are measured from states that a run names: cold, when they know what their files
// hold; warm, when they have also served the same requests once; others, when they have also served other prompts,
// those that the run's workload leaves out. This module must not know how a run is measured.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken {

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

// The states that a complete run is measured from: "cold" and "warm" where something learns and it names none; else
// none.
std::vector<std::string> starts_of(const nlohmann::json& run, const Registries& registries);
// The run from that state. A trace is recorded from the cold one alone.
nlohmann::json started(nlohmann::json run, const std::string& start);

}  // namespace foretoken

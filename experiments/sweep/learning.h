// Drafters and policies that learn are measured from two states, which a run names: cold, when they know what their
// files hold, and warm, when they have also served the same requests once. This module must not know how a run is
// measured.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken {

// Whether the drafter or the policy of a complete run learns, as far as it shows before models are loaded.
std::optional<bool> learns(const nlohmann::json& run, const Registries& registries);

// "cold" or "warm"; empty where a run does not name the state that it is measured from.
std::string start_of(const nlohmann::json& run);
inline bool is_warm(const nlohmann::json& run) { return start_of(run) == "warm"; }

// Refuses a run that names a state though nothing learns, or whose trace would be of another state than it names.
void expect_start(const nlohmann::json& run, const Registries& registries, const std::string& where);
// The same of a run whose engine says whether anything learns.
void expect_start(const nlohmann::json& run, bool learns);

// The states that a complete run is measured from: "cold" and "warm" where something learns and it names none; else
// none.
std::vector<std::string> starts_of(const nlohmann::json& run, const Registries& registries);
// The run from that state. A trace is recorded from the cold one alone.
nlohmann::json started(nlohmann::json run, const std::string& start);

}  // namespace foretoken

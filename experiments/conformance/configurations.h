// The configs of the registered components that the kit tries. No drafter or verifier is known by name, except in a
// table of further configs.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken::conformance {

// The complete config, with a table model for every required model that is missing.
template <class T> nlohmann::json configured(const Registry<T>& registry, nlohmann::json config);

// The complete configs of one entry. A required option that names no model can only be set by a user: an Error that
// says how.
template <class T> std::vector<nlohmann::json> configurations(const Registry<T>& registry, const std::string& name);

// Those of all entries that need no option from a user.
template <class T> std::vector<nlohmann::json> configurations(const Registry<T>& registry);

// A sentence for each of the other entries.
template <class T> std::vector<std::string> not_configured(const Registry<T>& registry);

}  // namespace foretoken::conformance

// Which configs of the registered components the kit tries. Nothing here knows one drafter or verifier from another,
// but for a table of configs worth trying.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken::conformance {

// The complete config, with a table model for every model that must be given and is not.
template <class T> nlohmann::json configured(const Registry<T>& registry, nlohmann::json config);

// The configs of one entry, complete. Where an option must be given and names no model, only a user knows what to give:
// an Error that says how.
template <class T> std::vector<nlohmann::json> configurations(const Registry<T>& registry, const std::string& name);

// Of all entries that need nothing from a user.
template <class T> std::vector<nlohmann::json> configurations(const Registry<T>& registry);

// The others: a sentence for each.
template <class T> std::vector<std::string> not_configured(const Registry<T>& registry);

}  // namespace foretoken::conformance

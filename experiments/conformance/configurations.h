// The configs of the registered components that the kit tries: the examples of each entry. No component is known by
// name.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken::conformance {

// The complete config, with a table model for every required model that is missing.
template <class T> nlohmann::json configured(const Registry<T>& registry, nlohmann::json config);

// The complete configs of one entry: its examples, or its defaults where it gives none, so often that each table model
// has its turn where the entry needs a model. A required option that names no model can only be set by a user: an
// Error that says how.
template <class T> std::vector<nlohmann::json> configurations(const Registry<T>& registry, const std::string& name);

// Those of all entries that need no option from a user.
template <class T> std::vector<nlohmann::json> configurations(const Registry<T>& registry);

// A sentence for each of the other entries.
template <class T> std::vector<std::string> not_configured(const Registry<T>& registry);

}  // namespace foretoken::conformance

// The components that the kit tries, from what their entries declare: configs, other values of their options, how they
// are guarded; and drafters of its own. No component is known by name.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/conformance/scenario.h"
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

// Why a component cannot be used, whatever it is paired with: it cannot be made, or needs what nothing serves. Empty
// where it can.
template <class T>
std::string refusal_of(const Registries& registries, const Registry<T>& registry, const nlohmann::json& config);

// A sentence for each of the other entries.
template <class T> std::vector<std::string> not_configured(const Registry<T>& registry);

// Complete configs that differ from `given` in one number or boolean: at both ends of the declared range, and between;
// then some with random numbers in all these ranges. Options may depend on each other, so that a component may refuse
// some of them. What is right at the defaults may be wrong elsewhere. An option without a declared least value is left
// as it is.
std::vector<nlohmann::json> other_options(const std::vector<Option>& options, const nlohmann::json& given);

template <class T> std::vector<nlohmann::json> other_options(const Registry<T>& registry, const nlohmann::json& given) {
  return other_options(registry.find(given).options, registry.complete(given));
}

// Components as the kit runs them: whatever they throw names them. Drafters' trees are held to what the engine expects
// of them (expect_tree, expect_distributions), and to one for each request, wherever they are asked for: laws look at
// them before the engine does, and ask drafters themselves.
Registries guarded(Registries registries);

// Trees of random shapes with siblings of several kinds, so that laws cover more than the built-in drafters propose,
// and unsound variants that a law must detect. `registries` with the drafter "random_tree": every node's parent is a
// random earlier node, some nodes are absent. Its distribution is a table model's, its shape depends on the seed and
// the length of the sequence only. Options: "seed"; "kinds": "certain", "independent", "mixed" (both), "chain",
// "without_replacement" (siblings), "marginals" (q sees no token of the tree) or "repeatless", which declares
// independent draws but never repeats a sibling (unsound); "peeks": true removes a node by its own q(x) (unsound).
Registries with_scripted(Registries registries);
nlohmann::json random_tree(int seed, const std::string& kinds, bool peeks = false);

}  // namespace foretoken::conformance

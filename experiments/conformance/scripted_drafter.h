// Drafters for tests: trees of random shapes with siblings of several kinds, so that laws cover more than the built-in
// drafters propose, and unsound variants that a law must detect. This module must not know verifiers.
#pragma once
#include "experiments/conformance/scenario.h"

namespace foretoken::conformance {

// `registries` with the drafter "random_tree": every node's parent is a random earlier node, some nodes are absent. Its
// distribution is a table model's, its shape depends on the seed and the length of the sequence only. Options: "seed";
// "kinds": "certain", "independent", "mixed" (both), "chain", "without_replacement" (siblings), "marginals" (q
// sees no token of the tree) or "repeatless", which declares independent draws but never repeats a
// sibling (unsound); "peeks": true removes a node by its own q(x) (unsound).
Registries with_scripted(Registries registries);
nlohmann::json random_tree(int seed, const std::string& kinds, bool peeks = false);

}  // namespace foretoken::conformance

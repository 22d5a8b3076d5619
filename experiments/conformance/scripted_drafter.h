// Drafters of the tests: trees of random shapes with siblings of several kinds, so that laws see more than the built-in
// drafters propose; and one that cheats, so that a law sees it caught. This module must not know verifiers.
#pragma once
#include "experiments/conformance/scene.h"

namespace foretoken::conformance {

// `registries` with the drafter "random_tree": every node hangs below a random earlier one, some are absent. Its own
// law is a table's, its shape depends on the seed and the length of the sequence alone. Options: "seed"; "kinds":
// "certain", "independent", "mixed" (of both), "chain", "without_replacement" (families of siblings), "marginals" (q
// sees no token of the tree) or "repeatless", which says independent but never repeats a sibling: a lie; "peeks": true
// cuts a node by its own q(x), which no drafter may do.
Registries with_scripted(Registries registries);
nlohmann::json random_tree(int seed, const std::string& kinds, bool peeks = false);

}  // namespace foretoken::conformance

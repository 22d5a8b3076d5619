// What proposals expect of themselves: how probable the draft holds its first tokens. This module must not know
// drafters or verifiers.
#pragma once
#include "framework/components/verifier.h"

namespace foretoken {

// Fills `chances`, f32 [trials] on the backend's device: of each tree's first node below the root, the probability that
// the draft gives to its token, which is the less of that in q and in q at temperature 1 with nothing cut; -1 where
// there is no such node, or no q. A pass over the vocabulary for each tree.
void first_chances(Backend& backend, const Trials& trials, Tensor chances);

}  // namespace foretoken

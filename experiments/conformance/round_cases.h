// The trees on which a verifier is judged alone: deep, wide, branching, of every kind of nodes that it takes. This
// module must not know any verifier by name.
#pragma once
#include <vector>

#include "experiments/conformance/rounds.h"
#include "framework/components/verifier.h"

namespace foretoken::conformance {

// A chain of depth 16: p = q is one-hot at all levels but five, of which two are beyond depth 6.
RoundCase deep_chain(Drawn drawn, int seed);
// Siblings and a level below them over a vocabulary of which seven tokens are possible, at both ends and on both sides
// of each multiple of 256.
RoundCase wide_tree(int vocab, Drawn drawn, int seed);
// `siblings` children of one kind below the root.
RoundCase one_family(Drawn drawn, int siblings, int vocab, int seed);
// A random tree of at most `nodes` nodes; every family is of one of these kinds, or of certain guesses mixed with it.
RoundCase random_round(const std::vector<Drawn>& kinds, int nodes, int vocab, int seed);

std::vector<RoundCase> round_cases_of(const Soundness& soundness);

}  // namespace foretoken::conformance

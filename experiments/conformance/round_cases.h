// The trees on which a verifier is judged alone: deep, wide, branching, of every kind of nodes that it takes. This
// module must not know any verifier by name.
#pragma once
#include <vector>

#include "experiments/conformance/rounds.h"
#include "framework/components/verifier.h"

namespace foretoken::conformance {

// A chain of depth 16: p = q is one-hot at all levels but five, of which two are beyond depth 6.
RoundCase deep_chain(Drawn drawn, int seed);
// The longest chain that there may be, far on in a text; on four of its levels p and q are random, elsewhere they are
// one-hot.
RoundCase longest_chain(Drawn drawn, int seed);
// As many nodes as a tree may have: five siblings on a level, two on three levels where p and q are random, and one on
// the last ones. Below the second of these three the path goes on at the second sibling, else at the first.
RoundCase fullest_tree(Drawn drawn, int seed);
// As large, with four nodes at which p and q are random, numbered `first` and, from one to the next, 32, 64 and 128
// more; of a chain, whose nodes are 64 at most, three, 16 and 32 apart.
RoundCase nodes_apart(Drawn drawn, int first);
// The same depth as deep_chain with two families of siblings, both beyond depth 6.
RoundCase deep_tree(Drawn drawn, int seed);
// Siblings and a level below them over a vocabulary of which so many `tokens` are possible: at the ends, on the sides
// of multiples of 256, or between. Which ones depends on the seed.
RoundCase wide_tree(int vocab, Drawn drawn, int seed, int tokens);
// `siblings` children of one kind below the root.
RoundCase one_family(Drawn drawn, int siblings, int vocab, int seed);
// Siblings drawn from a distribution with all mass on one token but for e^-gap: what is left for the second sibling is
// small, and less than the rounding of 1 where the gap is above 37.
RoundCase confident_family(Drawn drawn, int gap, int seed);
// As many siblings, of which most are tokens that the target hardly ever emits. p is on the first and the last token,
// and what is left of the last one after k siblings were rejected falls with every one of them: a draw of the last
// token, which would be accepted, is rare. The tree is too large to be enumerated.
RoundCase long_family(Drawn drawn, int siblings, int seed);
// A random tree of at most `nodes` nodes. Every family is of one of these kinds; where certain guesses are among them,
// some families have one guess beside the others, and some have an absent node. Two of three lie where positions become
// multiples of high powers of two.
RoundCase random_round(const std::vector<Drawn>& kinds, int nodes, int vocab, int seed);
// Too large to be enumerated: many families of up to six siblings; a chain of which every level is random.
RoundCase large_round(const std::vector<Drawn>& kinds, int nodes, int seed);
RoundCase full_chain(Drawn drawn, int length, int seed);

// The cases that are enumerated: all of them, or those for another value of an option of the verifier.
std::vector<RoundCase> round_cases_of(const Soundness& soundness);
std::vector<RoundCase> few_round_cases_of(const Soundness& soundness);

}  // namespace foretoken::conformance

// One round of a verifier alone, without engine or model: a tree of a given shape is drawn and judged over every
// outcome of every draw. So trees may be deep, wide and of any kind of nodes, at little cost. This module must not know
// drafters or any verifier by name.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "experiments/conformance/scenario.h"
#include "framework/components/verifier.h"
#include "kernels/host_backend.h"

namespace foretoken::conformance {

// A node below the root. Siblings drawn without replacement stand together. With a race, so do all drawn siblings that
// stand side by side: races of one position are alike, so they are the first, second, ... of one race, whatever their
// kind.
struct RoundNode {
  int parent = 0;
  Drawn drawn = Drawn::chain;
  bool absent = false;  // its token is -1
};

struct RoundCase {
  std::string name;
  int vocab = 3;
  std::vector<RoundNode> nodes{};
  // f32 [vocab] logits after the tokens of a path below the root: the target's, or the draft's.
  std::function<std::vector<float>(std::span<const Token> path, bool draft)> logits{};
  Warp warp{.temperature = 1};
  std::uint64_t seed = 1;       // of the certain guesses, which follow the draft's distribution
  std::uint32_t position = 17;  // the length of the sequence
};

// What was found over all outcomes.
struct RoundOutcomes {
  struct Tree {
    Round round;         // the tree and its distributions
    double weight = 0;   // the probability of its tokens
    EmittedLaw emitted;  // joint with the tree: the sum is `weight`
  };
  std::map<std::vector<Token>, Tree> trees;  // by the tokens of the nodes
  double accepted = 0;                       // expected number of accepted tokens
  long paths = 0;                            // outcomes of the draws
  std::string asked_twice;                   // Enumerator::asked_twice
};
// Follows every outcome. A rule that gives an invalid verdict is an Error.
RoundOutcomes enumerate_round(const Registries& registries, const nlohmann::json& verifier, const RoundCase& c,
                              HostBackend& backend);
// Judges one tree `samples` times with Philox, a fresh name every time: how often each sequence was emitted.
struct RoundSamples {
  Round round;
  std::map<std::vector<Token>, long> emitted;
};
RoundSamples sample_round(const Registries& registries, const nlohmann::json& verifier, const RoundCase& c,
                          HostBackend& backend, long samples);

// Draws and judges a tree `samples` times with Philox, fresh names every time; `each` gets what was emitted.
void sample_rounds(const Registries& registries, const nlohmann::json& verifier, const RoundCase& c,
                   HostBackend& backend, long samples, const std::function<void(const std::vector<Token>&)>& each);

// The distribution after a path below the root: the target's, or the draft's.
std::vector<double> target_after(const RoundCase& c, std::span<const Token> path);
std::vector<double> draft_after(const RoundCase& c, std::span<const Token> path);

// The trees on which a verifier is judged alone.

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

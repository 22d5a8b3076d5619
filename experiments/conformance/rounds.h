// One round of a verifier alone, without engine or model: a tree of a given shape is drawn and judged over every
// outcome of every draw. So trees may be deep, wide and of any kind of nodes, at little cost. This module must not know
// drafters or any verifier by name.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "experiments/conformance/scenario.h"
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

}  // namespace foretoken::conformance

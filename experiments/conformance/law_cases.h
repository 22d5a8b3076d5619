// The scenarios of each law. Every scenario builds its own devices and models, so scenarios may run concurrently.
#pragma once
#include "experiments/conformance/law_table.h"

namespace foretoken::conformance {

using Cases = std::vector<LawCase>;

Cases exact_cases(const Candidate& c, const Environment& e);
Cases round_cases(const Candidate& c, const Environment& e);
// Whether the distribution that a lossy verifier states is greedy at temperature 0: looked up for chains whose last
// token is any other than the target's, over many distributions of the target.
bool states_greedy(const Candidate& c);
Cases sampled_cases(const Candidate& c, const Environment& e);
Cases greedy_cases(const Candidate& c, const Environment& e);
Cases coupled_cases(const Candidate& c, const Environment& e);
Cases batch_cases(const Candidate& c, const Environment& e);
Cases memory_cases(const Candidate& c, const Environment& e);
Cases cache_cases(const Candidate& c, const Environment& e);
Cases acceptance_cases(const Candidate& c, const Environment& e);
Cases limits_cases(const Candidate& c, const Environment& e);
Cases options_cases(const Candidate& c, const Environment& e);
Cases causal_cases(const Candidate& c, const Environment& e);
Cases device_cases(const Candidate& c, const Environment& e);

// The candidate's subject under a fixed length, unless its policy was chosen. `nodes`: of a tree, the root included; 0:
// as many as a chain has.
Subject under_length(const Candidate& c, int length, int nodes = 0);

// The candidate with other options of its drafter, or of its policy where that was chosen: one for each that neither
// the component nor the pairing refuses, and what tells it from the others.
struct OtherCandidate {
  Candidate candidate;
  std::string options;  // JSON
};
std::vector<OtherCandidate> with_other_options(const Candidate& c);

}  // namespace foretoken::conformance

// The scenarios in which the kit asks each law. Every scenario builds its own devices and models, so that scenarios may
// run at once.
#pragma once
#include "experiments/conformance/law_table.h"

namespace foretoken::conformance {

using Cases = std::vector<LawCase>;

Cases exact_cases(const Candidate& c, const Ground& g);
Cases sampled_cases(const Candidate& c, const Ground& g);
Cases greedy_cases(const Candidate& c, const Ground& g);
Cases coupled_cases(const Candidate& c, const Ground& g);
Cases batch_cases(const Candidate& c, const Ground& g);
Cases memory_cases(const Candidate& c, const Ground& g);
Cases cache_cases(const Candidate& c, const Ground& g);
Cases acceptance_cases(const Candidate& c, const Ground& g);
Cases limits_cases(const Candidate& c, const Ground& g);
Cases options_cases(const Candidate& c, const Ground& g);
Cases causal_cases(const Candidate& c, const Ground& g);
Cases device_cases(const Candidate& c, const Ground& g);

// The candidate's subject under a fixed length, unless its policy was chosen.
Subject under_length(const Candidate& c, int length);

}  // namespace foretoken::conformance

// The sampling options, in one table: what `options` demands of each with every drafter and verifier is that the law is exact or
// that the engine refuses in one sentence; an option that is silently ignored is neither. A new option is one more line.
#pragma once
#include "experiments/conformance/laws.h"

namespace foretoken::conformance {

struct SamplingOption {
  std::string key;   // as in a run document: "top_p"
  std::string text;  // "top_p 0.7"
  Sampling sampling;
};
const std::vector<SamplingOption>& sampling_options();

// What a subject does with an option.
struct OptionFinding : Finding {
  std::string refusal;  // the engine's sentence; empty where it took the option
};
// Exact, over every outcome of every draw, or refused before anything was drawn. Also fails where the option changes nothing in
// the target's law, since then nothing was shown.
OptionFinding exact_or_refused(const Subject& subject, const SamplingOption& option);

}  // namespace foretoken::conformance

// The sampling options, in one table. The law `options` requires of each, with every drafter and verifier, that the
// distribution is exact or that the engine refuses the option in one sentence; a silently ignored option is neither. A
// new option is one more line.
#pragma once
#include "experiments/conformance/laws.h"

namespace foretoken::conformance {

struct SamplingOption {
  std::string key;   // as in a run document: "top_p"
  std::string text;  // "top_p 0.7"
  Sampling sampling;
  int samples = 1;  // of every prompt
  Tokens stop{};    // a stop sequence
  std::function<Finding(const Subject&)>
      shown{};  // the test of an option that changes no distribution; null: enumerate every outcome of every draw
};
const std::vector<SamplingOption>& sampling_options();
// All options that adjust distributions by the tokens so far, together.
Sampling talkative(float temperature);

// How a subject treats an option.
struct OptionFinding : Finding {
  std::string refusal;  // the engine's message; empty if it accepted the option
};
// Exact, over every outcome of every draw, or refused before anything was drawn. Also fails if the option does not
// change the target's distribution, since then nothing was shown. `most_ways` as in ExactCase.
OptionFinding exact_or_refused(const Subject& subject, const SamplingOption& option, long most_ways = 0);

// Options against drafters, a table for every verifier, in Markdown: "exact", or the number of the refusal's message.
// Every cell was just tested; neither exact nor refused is an Error.
std::string option_tables(const Registries& registries);

}  // namespace foretoken::conformance

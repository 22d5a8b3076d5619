// The sampling options, in one table: what `options` demands of each with every drafter and verifier is that the law is
// exact or that the engine refuses in one sentence; an option that is silently ignored is neither. A new option is one
// more line.
#pragma once
#include "experiments/conformance/laws.h"

namespace foretoken::conformance {

struct SamplingOption {
  std::string key;   // as in a run document: "top_p"
  std::string text;  // "top_p 0.7"
  Sampling sampling;
  int samples = 1;  // of every prompt
  Tokens stop{};    // a text that ends a request
  std::function<Finding(const Subject&)>
      shown{};  // of an option that changes no law; null: by every outcome of every draw
};
const std::vector<SamplingOption>& sampling_options();
// Everything that bends laws by what has been said, at once.
Sampling talkative(float temperature);

// What a subject does with an option.
struct OptionFinding : Finding {
  std::string refusal;  // the engine's sentence; empty where it took the option
};
// Exact, over every outcome of every draw, or refused before anything was drawn. Also fails where the option changes
// nothing in the target's law, since then nothing was shown. `most_ways`: as ExactCase has it.
OptionFinding exact_or_refused(const Subject& subject, const SamplingOption& option, long most_ways = 0);

// Options against drafters, a table for every verifier, in Markdown: "exact", or a number that leads to the sentence of
// the refusal. Everything in it was just shown; what is neither exact nor refused is an Error.
std::string option_tables(const Registries& registries);

}  // namespace foretoken::conformance

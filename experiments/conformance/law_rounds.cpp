#include <algorithm>
#include <cmath>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/rounds.h"
#include "experiments/conformance/statistics.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {
namespace {

int depth_of(const RoundCase& c) {
  std::vector<int> depth{0};
  for (const RoundNode& n : c.nodes) depth.push_back(depth[std::size_t(n.parent)] + 1);
  return *std::ranges::max_element(depth);
}

// Adds every continuation of `text` by the target up to `tokens` tokens.
void continue_by_target(const RoundCase& c, std::size_t tokens, double weight, std::vector<Token>& text,
                        EmittedLaw& law) {
  if (text.size() == tokens) {
    law[text] += weight;
    return;
  }
  const std::vector<double> p = target_after(c, text);
  for (std::size_t x = 0; x < p.size(); ++x) {
    if (p[x] == 0) continue;
    text.push_back(Token(x));
    continue_by_target(c, tokens, weight * p[x], text, law);
    text.pop_back();
  }
}

std::string sequence(const std::vector<Token>& tokens) { return "[" + text_of(tokens) + "]"; }

// Fails unless both give every sequence the same probability.
void compare(const EmittedLaw& found, const EmittedLaw& law, const std::string& where, Finding& f) {
  EmittedLaw all = law;
  for (const auto& [text, p] : found) all.try_emplace(text, 0.0);
  double worst = 0, variation = 0;
  std::vector<Token> at;
  for (const auto& [text, unused] : all) {
    const auto got = found.find(text), wanted = law.find(text);
    const double d = (got == found.end() ? 0 : got->second) - (wanted == law.end() ? 0 : wanted->second);
    variation += std::abs(d) / 2;
    if (std::abs(d) > worst) worst = std::abs(d), at = text;
  }
  f.measure = std::max(f.measure, variation);
  if (worst > 1e-12 || std::isnan(worst))
    f.fail(where + ": total variation " + std::to_string(variation) + ", worst at " + sequence(at) + " by " +
           std::to_string(worst));
}

Finding exact_round(const RoundCase& c, const RoundOutcomes& found) {
  Finding f;
  EmittedLaw emitted, continued, law;
  for (const auto& [tokens, tree] : found.trees)
    for (const auto& [text, p] : tree.emitted) emitted[text] += p;
  const std::size_t tokens = std::size_t(depth_of(c)) + 1;
  for (const auto& [text, p] : emitted) {
    std::vector<Token> t = text;
    continue_by_target(c, tokens, p, t, continued);
  }
  std::vector<Token> none;
  continue_by_target(c, tokens, 1, none, law);
  compare(continued, law, c.name, f);
  return f;
}

Finding induced_round(const RoundCase& c, const RoundOutcomes& found, const Soundness& soundness) {
  Finding f;
  for (const auto& [tokens, tree] : found.trees) {
    EmittedLaw law = soundness.induced(tree.round);
    for (auto& [text, p] : law) p *= tree.weight;
    compare(tree.emitted, law, c.name + ", tree " + sequence(tokens), f);
  }
  return f;
}

}  // namespace

Finding one_round(const Subject& subject, const RoundCase& c) {
  ReferenceBackend backend;
  const Soundness soundness = soundness_of(subject.registries, subject.configs.verifier);
  const RoundOutcomes found = enumerate_round(subject.registries, subject.configs.verifier, c, backend);
  Finding f = soundness.induced ? induced_round(c, found, soundness) : exact_round(c, found);
  f.what = subject.configs.verifier.dump() + ", " + c.name + (f.what.empty() ? "" : ": " + f.what);
  f.cases = found.paths;
  return f;
}

Finding sampled_round(const Subject& subject, const RoundCase& c, long samples, double level) {
  ReferenceBackend backend;
  const Soundness soundness = soundness_of(subject.registries, subject.configs.verifier);
  const RoundSamples found = sample_round(subject.registries, subject.configs.verifier, c, backend, samples);
  const EmittedLaw induced = soundness.induced(found.round);
  std::vector<long> counts;
  std::vector<double> law;
  long counted = 0;
  for (const auto& [text, p] : induced) {
    const auto at = found.emitted.find(text);
    counts.push_back(at == found.emitted.end() ? 0 : at->second), law.push_back(p);
    counted += counts.back();
  }
  counts.push_back(samples - counted), law.push_back(0);  // what the stated distribution never emits
  const ChiSquare result = chi_square(counts, law);
  Finding f{.what = subject.configs.verifier.dump() + ", " + c.name, .cases = samples};
  if (result.p_value < level)
    f.fail(c.name + ": a chi-square of " + std::to_string(samples) +
           " rounds against the induced distribution gives p = " + std::to_string(result.p_value));
  return f;
}

}  // namespace foretoken::conformance

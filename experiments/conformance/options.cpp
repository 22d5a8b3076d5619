#include "experiments/conformance/options.h"

#include <cmath>

#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

const TableModel::Options kTarget{.vocab = 4, .order = 2, .seed = 17, .impossible = 0.1};
const Sampling kPlain{.temperature = 1};

// The engine's refusal of a request with this option; empty where it takes it.
std::string refusal_of(const Subject& subject, const Sampling& sampling) {
  ReferenceBackend backend;
  const Cast cast = table_cast(kTarget);
  Engine engine(backend, cast.target, subject.registries, subject.chairs, {.batch = 1, .step_rows = 64, .page_rows = 2, .pages = 64}, cast.load);
  try {
    engine.submit({{0, 1}, {}, sampling, 1, {}});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Somewhere the option makes another law than plain sampling.
bool changes(const Sampling& sampling) {
  const TableModel target(kTarget);
  for (Token a = 0; a < kTarget.vocab; ++a)
    for (Token b = 0; b < kTarget.vocab; ++b) {
      const std::vector<Token> context{a, b};
      const auto with = target.law(context, sampling.warp()), without = target.law(context, kPlain.warp());
      for (std::size_t x = 0; x < with.size(); ++x)
        if (std::abs(with[x] - without[x]) > 0.01) return true;
    }
  return false;
}

}  // namespace

const std::vector<SamplingOption>& sampling_options() {
  static const std::vector<SamplingOption> table = {
      {"temperature", "temperature 0", {.temperature = 0}},
      {"temperature", "temperature 0.6", {.temperature = 0.6f}},
      {"temperature", "temperature 1.7", {.temperature = 1.7f}},
      {"top_k", "top_k 2", {.temperature = 1, .top_k = 2}},
      {"top_p", "top_p 0.7", {.temperature = 1, .top_p = 0.7f}},
      {"min_p", "min_p 0.3", {.temperature = 1, .min_p = 0.3f}},
      {"", "all at once", {.temperature = 0.9f, .top_k = 3, .top_p = 0.8f, .min_p = 0.1f}},
  };
  return table;
}

OptionFinding exact_or_refused(const Subject& subject, const SamplingOption& option) {
  OptionFinding f;
  f.what = subject.text() + ", " + option.text;
  f.refusal = refusal_of(subject, option.sampling);
  ++f.seen[f.refusal.empty() ? "exact" : "refused"];
  if (!f.refusal.empty()) return f;
  for (const Text& prompt : {Text{0}, Text{3, 1, 0, 3, 1}}) {
    const Finding e = exact(subject, {.target = kTarget, .prompts = {prompt}, .tokens = 3, .max_new_tokens = 4, .scene = {.sampling = option.sampling}});
    if (!e.holds) f.fail(option.text + " is neither exact nor refused: " + e.why);
    f.measure = std::max(f.measure, e.measure), f.cases += e.cases, f.accepted += e.accepted, f.refused += e.refused;
  }
  if (!changes(option.sampling)) f.fail(option.text + " changes no law of this scene, so nothing was shown");
  return f;
}

}  // namespace foretoken::conformance

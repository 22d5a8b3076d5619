#include "experiments/conformance/law_table.h"

#include <algorithm>

#include "experiments/conformance/law_cases.h"

namespace foretoken::conformance {
namespace {

using Why = std::string;

bool proposes_nothing(const Candidate& c) { return c.needs.proposes.empty(); }
bool all_are(const Candidate& c, std::initializer_list<Drawn> kinds) {
  return std::ranges::all_of(c.needs.proposes, [&](Drawn d) { return std::ranges::find(kinds, d) != kinds.end(); });
}

Why unless_exact(const Candidate& c, const Ground&) {
  return c.soundness.promise.rfind("exact", 0) == 0
             ? ""
             : "the verifier promises \"" + c.soundness.promise + "\", not \"exact\"";
}
Why unless_path_identical(const Candidate& c, const Ground&) {
  return c.soundness.promise.find("path-identical") != Why::npos
             ? ""
             : "the verifier promises \"" + c.soundness.promise + "\", not \"path-identical\"";
}
Why never(const Candidate&, const Ground&) { return ""; }
Why if_learning(const Candidate& c, const Ground&) {
  return c.needs.learns        ? "the drafter says that it learns from outcomes or from other requests"
         : proposes_nothing(c) ? "the drafter proposes nothing"
                               : "";
}
Why unless_chains(const Candidate& c, const Ground&) {
  if (proposes_nothing(c)) return "the drafter proposes nothing";
  if (c.soundness.acceptance == Acceptance::other) return "the verifier states no formula of its acceptance";
  return all_are(c, {Drawn::certain, Drawn::chain}) ? "" : "the expected acceptance of siblings has no formula here";
}
Why unless_drawing(const Candidate& c, const Ground&) {
  if (proposes_nothing(c)) return "the drafter proposes nothing";
  return all_are(c, {Drawn::certain}) ? "the drafter draws nothing: all its nodes are certain" : "";
}
Why without_devices(const Candidate&, const Ground& g) {
  return g.devices.empty() ? "there is no device here but the reference" : "";
}
Why of_models(const Candidate&, const Ground&) {
  return "it concerns models and devices, in which drafter, policy and verifier have no part; ./foretoken test asks it";
}
Why of_mutations(const Candidate&, const Ground&) {
  return "it concerns the laws themselves: ./foretoken test plants the bugs that they must find";
}
std::vector<LawCase> no_cases(const Candidate&, const Ground&) { return {}; }

// What is written.
std::vector<KitLaw> laws_of_output() {
  return {
      {"exact",
       "the joint law of the next tokens is the target's to 1e-12, over every way in which the named draws can fall",
       "ways the draws fall", "total variation", unless_exact, exact_cases},
      {"sampled",
       "end to end, with the engine's own draws, a joint chi-square does not tell the texts from the target's law",
       "texts", "p-value after Holm", unless_exact, sampled_cases},
      {"greedy", "at temperature 0 the text is plain decoding's, token by token", "texts", "", unless_exact,
       greedy_cases},
      {"coupled", "at any temperature the text is plain decoding's with the same seed, token by token", "texts", "",
       unless_path_identical, coupled_cases},
      {"batch",
       "alone and in a crowd, in any order, chunks, page size, under preemption and prefix hits: the same text, or the "
       "same verdicts of equal trees",
       "comparisons", "", never, batch_cases},
  };
}

// What is remembered, and what is guessed.
std::vector<KitLaw> laws_of_drafting() {
  return {
      {"memory",
       "in every step the drafter that lived through all refusals proposes what a fresh one proposes, tokens and laws",
       "proposals", "", if_learning, memory_cases},
      {"cache",
       "after every step each cache holds ceil(length / page) pages and the keys and values of a fresh prefill; none "
       "is held at the end",
       "caches compared", "", never, cache_cases},
      {"acceptance", "at each position as many guesses stand as the laws p and q and the verifier's formula say",
       "guesses tested", "greatest |z|", unless_chains, acceptance_cases},
      {"limits",
       "the target as its own draft has every guess accepted, a budget of 0 is plain decoding, random drafts stay "
       "exact",
       "guesses, texts, ways the draws fall", "", unless_exact, limits_cases},
  };
}

// How options, draws and devices are treated, and what is asked elsewhere.
std::vector<KitLaw> laws_of_treatment() {
  return {
      {"options", "every sampling option is exact or refused in one sentence", "ways the draws fall", "total variation",
       unless_exact, options_cases},
      {"causal",
       "whether a node exists is decided before its token is drawn: forcing any draw to any token leaves the node "
       "where it is",
       "forced draws", "", unless_drawing, causal_cases},
      {"device",
       "the same logits and draws give the same laws, draws, verdicts and texts as on the reference device, bit for "
       "bit, and drafters' models are fed as many rows",
       "laws, draws, verdicts, texts", "", without_devices, device_cases},
      {"tree = chain", "the logits of a node of a tree are those of its path run alone", "nodes", "", of_models,
       no_cases},
      {"model", "logits and token ids are Transformers'", "logits", "", of_models, no_cases},
      {"mutations", "every planted bug fails some law", "bugs", "", of_mutations, no_cases},
  };
}

}  // namespace

Candidate candidate(const Subject& subject, bool own_policy) {
  Candidate c{subject,
              own_policy,
              soundness_of(subject.registries, subject.chairs.verifier),
              needs_of(subject.registries, subject.chairs.drafter),
              {}};
  for (const Option& o : subject.registries.drafters.find(subject.chairs.drafter).options)
    if (o.type == "model") c.model_options.push_back(o.name);
  return c;
}

const std::vector<KitLaw>& kit_laws() {
  static const std::vector<KitLaw> laws = [] {
    std::vector<KitLaw> all = laws_of_output();
    for (const auto& more : {laws_of_drafting(), laws_of_treatment()}) all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return laws;
}

}  // namespace foretoken::conformance

#include "experiments/conformance/law_table.h"

#include <algorithm>

#include "experiments/conformance/components.h"
#include "experiments/conformance/scenario.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using Why = std::string;

bool proposes_nothing(const Candidate& c) { return c.needs.proposes.empty(); }
bool all_are(const Candidate& c, std::initializer_list<Drawn> kinds) {
  return std::ranges::all_of(c.needs.proposes, [&](Drawn d) { return std::ranges::find(kinds, d) != kinds.end(); });
}

Why unless_exact(const Candidate& c, const Environment&) {
  return c.soundness.exact() ? "" : "the verifier promises \"" + c.soundness.promise + "\", not \"exact\"";
}
// Where the target's token is drawn whatever was drafted, no q is read, and the most outcomes are to be followed.
Why unless_telling(const Candidate& c, const Environment& e) {
  if (!c.own_verifier && c.soundness.acceptance == Acceptance::product)
    return "the verifier reads no distribution of the drafter; the law is shown beside the others";
  return unless_exact(c, e);
}
Why of_others(const Candidate& c, const Environment&) {
  if (!c.own_verifier) return "it concerns the verifier alone, which was not chosen; --verifier chooses it";
  return "";
}
// At temperature 0 a lossy verifier owes the greedy output too where the distribution that it states is greedy.
Why unless_greedy(const Candidate& c, const Environment& e) {
  return c.soundness.induced && states_greedy(c) ? "" : unless_exact(c, e);
}
Why unless_path_identical(const Candidate& c, const Environment&) {
  return c.soundness.path_identical() ? ""
                                      : "the verifier promises \"" + c.soundness.promise + "\", not \"path-identical\"";
}
Why never(const Candidate&, const Environment&) { return ""; }
Why unless_remembering(const Candidate& c, const Environment&) {
  return proposes_nothing(c) && (!c.own_policy || c.policy_learns) ? "the drafter proposes nothing" : "";
}
Why without_formula(const Candidate& c, const Environment&) {
  if (proposes_nothing(c)) return "the drafter proposes nothing";
  if (c.soundness.acceptance == Acceptance::other) return "the verifier states no formula of its acceptance";
  const bool chains = all_are(c, {Drawn::chain}), of_nodes = chains || all_are(c, {Drawn::certain, Drawn::chain});
  if (c.soundness.acceptance == Acceptance::joint && !chains) return "the joint acceptance of trees has no formula";
  return of_nodes || !c.soundness.race ? "" : "the acceptance of siblings of one race has no formula";
}
Why unless_proposing(const Candidate& c, const Environment&) {
  return proposes_nothing(c) ? "the drafter proposes nothing" : "";
}
Why unless_drawing(const Candidate& c, const Environment& e) {
  if (c.needs.races)
    return "an inner verifier makes its tokens, each of several draws; the law `exact` follows them all";
  return unless_proposing(c, e);
}
Why without_devices(const Candidate&, const Environment& e) {
  return e.devices.empty() ? "the reference is the only device here" : "";
}
Why of_models(const Candidate&, const Environment&) {
  return "it tests models and devices, not drafters, policies or verifiers; ./foretoken test runs it";
}
Why of_mutations(const Candidate&, const Environment&) {
  return "it tests the laws themselves: ./foretoken test plants the bugs that they must detect";
}
std::vector<LawCase> no_cases(const Candidate&, const Environment&) { return {}; }

// Of the output; of caches, of a drafter's state, and of acceptance; of options, draws and devices; then those that
// only ./foretoken test runs.
const std::vector<KitLaw> kLaws = {
    {"exact",
     "the joint distribution of the next tokens equals the target's within 1e-12, over all outcomes of the named "
     "draws",
     "outcomes of the draws", "total variation", unless_telling, exact_cases},
    {"rounds",
     "one round of the verifier alone, on deep, wide and branching trees of every kind that it takes, emits the "
     "target's joint distribution within 1e-12, or the distribution that a lossy verifier states; that one accepts a "
     "draft of which the target is nearly sure no less often than another",
     "outcomes of the draws", "total variation", of_others, round_cases},
    {"sampled",
     "end to end, with the engine's own draws, a joint chi-square test does not reject the target's distribution",
     "outputs", "p-value after Holm", unless_telling, sampled_cases},
    {"greedy",
     "at temperature 0 the output equals plain decoding's, token by token, a lossy verifier's where its stated "
     "distribution is greedy",
     "outputs", "", unless_greedy, greedy_cases},
    {"coupled", "at any temperature the output equals plain decoding's with the same seed, token by token", "outputs",
     "", unless_path_identical, coupled_cases},
    {"batch",
     "alone and in a batch, for any order, chunks, page size, preemption and prefix hits: the same output, or the "
     "same verdicts of equal trees",
     "comparisons", "", never, batch_cases},
    {"memory",
     "in every step a drafter that saw all rejections and preemptions proposes what a fresh one proposes, tokens and "
     "distributions, and a policy gives the budgets of one that saw the sequence alone; in the end all is forgotten, "
     "and no other engine of the process changes it",
     "proposals, budgets", "", unless_remembering, memory_cases},
    {"cache",
     "after every step each cache holds ceil(length / page) pages and the keys and values of a fresh prefill; no "
     "page "
     "is held at the end",
     "caches compared", "", never, cache_cases},
    {"acceptance", "at each position as many drafts are accepted as p, q and the verifier's formula imply",
     "drafts tested", "greatest |z|", without_formula, acceptance_cases},
    {"limits",
     "the target as its own draft has every draft accepted, a budget of 0 is plain decoding, random drafts stay "
     "exact",
     "drafts, outputs, outcomes of the draws", "", unless_exact, limits_cases},
    {"options", "every sampling option is exact or refused in one sentence", "outcomes of the draws", "total variation",
     unless_telling, options_cases},
    {"causal",
     "whether a node exists is decided before its token is drawn: forcing any draw to any token keeps the node "
     "in place; every node is drawn as it is called, from the distribution at its parent, or holds no draw if it is "
     "called 'certain'",
     "rounds and forced draws", "", unless_drawing, causal_cases},
    {"device",
     "equal logits and draws give the reference device's distributions, draws, verdicts and outputs, bit for "
     "bit, and drafters' models are fed equally many rows",
     "distributions, draws, verdicts, outputs", "", without_devices, device_cases},
    {"tree = chain", "the logits of a tree's node equal those of its path run alone", "nodes", "", of_models, no_cases},
    {"model", "logits and token ids equal those of Transformers", "logits", "", of_models, no_cases},
    {"mutations", "every planted bug breaks a law", "bugs", "", of_mutations, no_cases},
};

}  // namespace

Candidate candidate(const Subject& subject, bool own_policy, bool own_verifier) {
  Candidate c{subject,
              own_policy,
              own_verifier,
              soundness_of(subject.registries, subject.configs.verifier),
              needs_of(subject.registries, subject.configs.drafter),
              {}};
  for (const Option& o : subject.registries.drafters.find(subject.configs.drafter).options)
    if (o.type == "model" && !subject.configs.drafter.value(o.name, nlohmann::json()).is_null())
      c.model_options.push_back(o.name);
  if (own_policy) {
    const PolicyTraits policy = policy_of(subject.registries, subject.configs.policy);
    c.policy_learns = policy.learns, c.most = policy.most;
  }
  return c;
}

std::string verifier_of(const Candidate& c) { return c.subject.configs.verifier.dump(); }

std::string drafter_of(const Candidate& c) {
  return c.subject.configs.drafter.dump() + c.subject.configs.policy.dump() + (c.soundness.race ? ", races" : "");
}

const std::vector<KitLaw>& kit_laws() { return kLaws; }

namespace {

using nlohmann::json;

// Nothing where a component refuses these options, or the verifier the drafter that has them.
template <class T> void add(const Candidate& c, const Registry<T>& registry, json ComponentConfigs::* which,
                            std::vector<OtherCandidate>& all) {
  const json given = registry.complete(c.subject.configs.*which);
  for (const json& config : other_options(registry, given)) {
    Subject s = c.subject;
    json changed = json::object();
    for (const auto& [key, value] : config.items())
      if (given.at(key) != value) changed[key] = value;
    s.configs.*which = config;
    if (refusal_of(s.registries, registry, config).empty() &&
        sound(s.registries, s.configs.drafter, s.configs.verifier))
      all.push_back({candidate(s, c.own_policy, c.own_verifier), changed.dump()});
  }
}

}  // namespace

std::vector<OtherCandidate> with_other_options(const Candidate& c) {
  std::vector<OtherCandidate> all;
  const Registries& r = c.subject.registries;
  if (c.own_policy)
    add(c, r.policies, &ComponentConfigs::policy, all);
  else
    add(c, r.drafters, &ComponentConfigs::drafter, all);
  return all;
}

}  // namespace foretoken::conformance

// The laws that every drafter, length policy and verifier must satisfy: functions from a subject and a scenario to a
// Finding. They know no subject by name; tests and `foretoken check` choose which to run.
#pragma once
#include <string>
#include <vector>

#include "experiments/conformance/enumerator.h"
#include "experiments/conformance/scenario.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {

// exact: the joint distribution of the next `tokens` tokens equals the target's within 1e-12, over every outcome of
// every draw. The measure is the total variation, the cases are the joint outcomes of the draws.
struct ExactCase {
  TableModel::Options target{.vocab = 3};
  std::vector<Tokens> prompts{};  // all of one case are decoded in one engine: their joint distribution is a product
  bool samples = false;           // the prompts are equal, and the outputs are samples of one request
  int tokens = 3;                 // that are compared of every output
  int max_new_tokens = 0;         // 0: tokens + 3, which the comparison does not reach; else the length limit
  Scenario scenario{};
  Tokens stop{};  // a stop sequence, which may end within a draft; empty: none
  long most_ways =
      0;  // if the draws have more joint outcomes, `tokens` is reduced by one, and again, down to `least`; 0: no bound
  int least = 2;
  int at_once = 1;            // joint outcomes that one engine decodes together, each with sequences of its own; where
                              // their drafts depend on one another it decodes one by one after all
  bool remembers = true;      // false: the enumerator forgets names, to show which bugs it then misses
  Renaming::Rename rename{};  // a planted bug of naming
  std::function<std::unique_ptr<HostBackend>()> backend{};                   // null: reference
  std::function<std::shared_ptr<Model>(std::shared_ptr<Model>)> disguise{};  // a planted bug of the target
  std::function<Host::Load(Backend&)> load{};  // of other models for drafters; null: table_models()
};
Finding exact(const Subject& subject, const ExactCase& c);

// sampled: the same with the engine's own draws, by a joint chi-square test whose sample detects a total variation of
// `found` with 99 % power at `level`. The measure is the p-value; the caller corrects for multiple tests (Holm).
struct SampledCase {
  TableModel::Options target{.vocab = 3};
  Tokens prompt{0, 1};
  int tokens = 2;
  double found = 0.01, level = 1e-3;
  Scenario scenario{.engine = {.batch = 64, .step_rows = 1024, .page_rows = 4, .pages = 2048}};
  Renaming::Rename rename{};
};
Finding sampled(const Subject& subject, const SampledCase& c, HostBackend& backend);

// same_text: the outputs of a subject equal those of plain decoding under the same verifier. At temperature 0 this is
// `greedy`; with a verifier that promises it, `coupled`.
Finding same_text(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                  std::span<const TestRequest> requests);

// batch: a sequence has the same output alone and in a batch. `batches` are the scenarios of the batches. Where trees
// differ (in a batch a drafter may have fewer rows) the comparison of that output ends, unless `whole` requires the
// whole output.
struct BatchCase {
  std::vector<Scenario> batches;
  bool whole = false;
};
// `seen` counts "preemptions" and "prefix rows".
Finding batch(const Subject& subject, const Scenario& alone, const BatchCase& c, Backend& backend, const Models& models,
              std::span<const TestRequest> requests);

// Why sequences end.
constexpr Finish kEnds[] = {Finish::length, Finish::stop_token, Finish::stop_rule, Finish::cancelled, Finish::failed};
// Between the ids of two sequences: a multiple of 2^32 and of 10^6, so that a table of a size that divides either of
// them takes the two for one.
constexpr SequenceId kIdsApart = SequenceId(1'000'000) << 32;

// memory: in every step, a drafter that served the whole run proposes what a fresh one proposes, tokens and
// distributions. In the end, when every sequence was forgotten, so it does for one that has the id of a former one and
// another text, and for one beside another of the same stream and the same first tokens.
Finding memory(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
               std::span<const TestRequest> requests);
// The same where sequences that go on are forgotten: now and then, or because the pool is too small, and the engine
// preempts them (it must).
enum class Interruption { none, forgotten, preempted };
Finding memory_across(const Subject& subject, Interruption interruption, const Scenario& scenario, HostBackend& backend,
                      const Models& models, std::span<const TestRequest> requests);

// memory of a length policy: in every step it gives each sequence the budget of a policy that saw this sequence alone,
// with the same PastOnly, whatever the batch, the order and preemption (which must occur); in the end, when every
// sequence was forgotten, a former id gets a new one's budget, and so does the second of two with unlike outcomes.
Finding policy_memory(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
                      std::span<const TestRequest> requests);

// cache: after every step every cache holds ceil(length / page) pages and the keys and values of a fresh prefill, bit
// for bit; nothing is held at the end.
Finding cache(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
              std::span<const TestRequest> requests);

// rounds: one round of the verifier alone on one tree, over every outcome of every draw. An exact verifier emits,
// continued by the target, the target's joint distribution within 1e-12; a lossy one, for every tree, its induced
// distribution (Soundness::induced). The measure is the greatest total variation, the cases are the outcomes of the
// draws.
struct RoundCase;
Finding one_round(const Subject& subject, const RoundCase& c);
// A lossy verifier given one draft, at temperatures 0, .6 and 1: the token of which the target is nearly sure is
// accepted no less often than any other. A rule and the distribution that it states may both have a comparison the
// wrong way round.
Finding prefers_probable(const Subject& subject);
// Of a rule that says that it judges the path of first children alone (Soundness::first_children): what it emits does
// not change where all other nodes are absent.
Finding first_children_alone(const Subject& subject, const RoundCase& c);
// A lossy verifier on one drawn tree, with draws of Philox: a chi-square test against its induced distribution.
Finding sampled_round(const Subject& subject, const RoundCase& c, long samples, double level);
// An exact verifier on many drawn trees of one shape, with draws of Philox. By level, the emitted tokens are scored by
// min(q / p, 4), by that times the score of the level before, and by their index; each score less its mean under p has
// mean 0 if the output has the target's distribution, also where only the rounds count that reach the level, since the
// others go on with p. Bernstein's inequality bounds the probability of the sums; the sum of these bounds is compared
// with `level`.
Finding scored_round(const Subject& subject, const RoundCase& c, long samples, double level);

// tree = chain: the logits of every node of a random tree equal those of its path run alone, bit for bit. The tree is
// behind `context` tokens and up to 20 more.
Finding tree_is_chain(Backend& backend, std::shared_ptr<Model> model, int nodes, std::uint64_t seed, int context = 0);

// limits: where a drafter's models are the target, the accepted path ends at a leaf, and what is drawn on any branch is
// drawn from the target's distribution (seen where that is a table); a budget of 0 is plain decoding. A guess may be
// any token: above temperature 0 the path may also end at its parent.
Finding twin_accepts_all(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                         std::span<const TestRequest> requests);
Finding no_budget_is_plain(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                           std::span<const TestRequest> requests);

// acceptance: by position, the measured acceptance of chains is what the distributions p and q imply. The measure is
// the greatest |z|.
Finding acceptance(const Subject& subject, const Scenario& scenario, Backend& backend,
                   const TableModel::Options& target, std::span<const TestRequest> requests);

// causal: whether a node exists is decided before its token is drawn. In every round, every draw of a fresh drafter is
// forced to every token of positive probability: the node must exist each time (an absent token is no node), and all
// nodes before it must be unchanged. The node must be called as it was drawn: what is called certain holds the token of
// no draw, what is called otherwise that of a draw from the distribution at its parent, for siblings without repeats
// without the earlier ones. Draws may have any names.
Finding causal(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
               std::span<const TestRequest> requests);

// device: given the same logits and draws, the distributions, the tokens drawn and the verdicts of a chain of `nodes`
// of each kind that the rule takes are equal bit for bit.
struct DeviceCase {
  int vocab = 61, sequences = 24, nodes = 4;
  std::uint64_t seed = 1;
};
Finding same_verdicts(const Subject& subject, const DeviceCase& c, Backend& reference, Backend& other);
// The same of ragged random trees of all kinds of nodes that the rule takes, from a bare root to `most_nodes` nodes and
// eight levels, in one batch.
struct DeviceTreesCase {
  int vocab = 61, trees = 64, most_nodes = 24;
  std::uint64_t seed = 1;
};
Finding same_tree_verdicts(const Subject& subject, const DeviceTreesCase& c, Backend& reference, Backend& other);
// With a model whose logits are equal on all devices, whole outputs are equal too, and drafters' models are fed equally
// many rows, so no cache drops on one device what it keeps on the other.
Finding same_on_devices(const Subject& subject, const Scenario& scenario, Backend& reference, Backend& other,
                        const Models& models, std::span<const TestRequest> requests);

}  // namespace foretoken::conformance

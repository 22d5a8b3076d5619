// The laws that every drafter, length policy and verifier must satisfy: functions from a subject and a scenario to a
// Finding. law_table.h has their statements; here is what a test may choose. They know no subject by name.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "experiments/conformance/enumerator.h"
#include "experiments/conformance/scenario.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {

// exact. The measure is the total variation, the cases are the joint outcomes of the draws.
struct ExactCase {
  TableModel::Options target{.vocab = 3};
  std::vector<Tokens> prompts{};  // all of one case are decoded in one engine: their joint distribution is a product
  bool samples = false;           // the prompts are equal, and the outputs are samples of one request
  int tokens = 3;                 // that are compared of every output
  int max_new_tokens = 0;         // 0: tokens + 3, which the comparison does not reach; else the length limit
  Scenario scenario{};
  Tokens stop{};  // a stop sequence, which may end within a draft; empty: none
  // If the draws have more joint outcomes, `tokens` is reduced by one, and again, down to `least`; 0: no bound.
  long most_ways = 0;
  int least = 2;
  int at_once = 1;        // joint outcomes that one engine decodes together, each with sequences of its own; where
                          // their drafts depend on one another it decodes one by one after all
  bool remembers = true;  // false: the enumerator forgets names, to show which bugs it then misses
  std::function<std::unique_ptr<HostBackend>()> backend{};                   // null: reference
  std::function<std::shared_ptr<Model>(std::shared_ptr<Model>)> disguise{};  // a planted bug of the target
  std::function<Host::Load(Backend&)> load{};  // of other models for drafters; null: table_models()
};
Finding exact(const Subject& subject, const ExactCase& c);

// sampled: by a joint chi-square test whose sample detects a total variation of `found` with 99 % power at `level`. The
// measure is the p-value; the caller corrects for multiple tests (Holm).
struct SampledCase {
  TableModel::Options target{.vocab = 3};
  Tokens prompt{0, 1};
  int tokens = 2;
  double found = 0.01, level = 1e-3;
  Scenario scenario{.engine = {.batch = 64, .step_rows = 1024, .page_rows = 4, .pages = 2048}};
};
Finding sampled(const Subject& subject, const SampledCase& c, HostBackend& backend);

// greedy at temperature 0; with a verifier that promises it, coupled: the outputs equal those of plain decoding under
// the same verifier.
Finding same_text(const Run& run);

// batch. The run's scenario is that of a sequence alone. Where trees differ (in a batch a drafter may have fewer rows)
// the comparison of that output ends, unless `whole` requires the whole output.
struct BatchCase {
  std::vector<Scenario> batches;
  bool whole = false;
};
// `seen` counts "preemptions" and "prefix rows".
Finding batch(const Run& alone, const BatchCase& c);

// Why sequences end.
constexpr Finish kEnds[] = {Finish::length, Finish::stop_token, Finish::stop_rule, Finish::cancelled, Finish::failed};
// Between the ids of two sequences: a multiple of 2^32 and of 10^6, so that a table of a size that divides either of
// them takes the two for one.
constexpr SequenceId kIdsApart = SequenceId(1'000'000) << 32;

// memory: in every step, a drafter that served the whole run proposes what a fresh one proposes, tokens and
// distributions. In the end, when every sequence was forgotten, so it does for one that has the id of a former one and
// another text, and for one beside another of the same stream and the same first tokens. Sequences that go on may be
// forgotten now and then, or because the pool is too small, and the engine preempts them (it must).
enum class Interruption { none, forgotten, preempted };
Finding memory(const Run& run, Interruption interruption = Interruption::none);
// A drafter, one that learns too, proposes for a sequence with the id of one that it was told to forget what it
// proposes for one with an id that it never met. Nothing is compared where two such ids get different proposals
// already.
Finding forgotten_ids(const Run& run);
// Of a drafter that does not learn: thousands of sequences that were drafted for and forgotten leave no memory in use.
Finding nothing_left(const Run& run);
// A run beside another engine in the process, whose sequences have the same ids, streams and turns and other texts,
// has the trees of the same run alone. Of components that learn, where two runs alone have equal trees.
Finding beside_another_engine(const Run& run, std::span<const TestRequest> others);

// memory of a length policy: in every step it gives each sequence the budget of a policy that saw this sequence alone,
// with the same PastOnly, whatever the batch, the order and preemption (which must occur); in the end, when every
// sequence was forgotten, a former id gets a new one's budget, and so does the second of two with unlike outcomes.
Finding policy_memory(const Run& run);
// Without an engine: the same in a batch of 24 sequences, through 72 rounds, none above PolicyTraits::most; and
// thousands of sequences that ended leave no memory in use.
Finding policy_in_company(const Run& run);

// Calls `live` thousands of times, with 0, 1, 2, ..., and fails where each leaves memory in use, also once every cache
// of a thousand has been filled. `remedy` ends the message. Counts bytes of the process's heap: nothing else may run.
void expect_nothing_left(const std::function<void(int)>& live, const std::string& remedy, Finding& f);

// cache: keys and values bit for bit.
Finding cache(const Run& run);

// rounds: one round of the verifier alone on one tree, over every outcome of every draw. An exact verifier emits,
// continued by the target, the target's joint distribution; a lossy one, for every tree, its induced distribution
// (Soundness::induced). The measure is the greatest total variation, the cases are the outcomes of the draws.
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

// limits: where a drafter's models are the target, the accepted path ends at a leaf, and what is drawn on any branch is
// drawn from the target's distribution (seen where that is a table); a budget of 0 is plain decoding. A guess may be
// any token: above temperature 0 the path may also end at its parent.
Finding twin_accepts_all(const Run& run);
Finding no_budget_is_plain(const Run& run);

// acceptance, of a table model, by position. The measure is the greatest |z|.
Finding acceptance(const Run& run);

// causal: in every round, every draw of a fresh drafter is forced to every token of positive probability: the node must
// exist each time (an absent token is no node), and all nodes before it must be unchanged. The node must be called as
// it was drawn: what is called certain holds the token of no draw, what is called otherwise that of a draw from the
// distribution at its parent, for siblings without repeats without the earlier ones. Draws may have any names.
Finding causal(const Run& run);
// In every call of Drafter::draft, each node that is called drawn holds the token of a draw of this call from the
// distribution that its kind and the proposal state, and no two draws, of whichever sequences, have one name. Races
// have no names of their own: they share the noise of their position.
Finding drawn_as_called(const Run& run);

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
// Of the law `rounds`: the verdicts of many trees are those of each tree alone.
Finding same_verdicts_alone(const Subject& subject, const DeviceTreesCase& c);
// With a model whose logits are equal on all devices, whole outputs are equal too, and drafters' models are fed equally
// many rows, so no cache drops on one device what it keeps on the other.
Finding same_on_devices(const Run& reference, Backend& other);

// options: the sampling options, in one table. With every drafter and verifier the distribution is exact or the engine
// refuses the option in one sentence; a silently ignored option is neither. A new option is one more line.
struct SamplingOption {
  std::string key;   // as in a run document: "top_p"
  std::string text;  // "top_p 0.7"
  Sampling sampling;
  int samples = 1;  // of every prompt
  Tokens stop{};    // a stop sequence
  // The test of an option that changes no distribution; null: enumerate every outcome of every draw.
  std::function<Finding(const Subject&)> shown{};
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

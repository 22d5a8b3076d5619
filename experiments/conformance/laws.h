// The laws that hold for whatever registers as a drafter, a length policy or a verifier: functions from a subject and a
// scenario to what was found. They know no subject by name; a test, or a conformance check of a plugin, only says which
// to ask.
#pragma once
#include <string>
#include <vector>

#include "experiments/conformance/enumerator.h"
#include "experiments/conformance/scenario.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {

// exact: the joint law of the next `tokens` tokens equals the target's, to 1e-12, over every outcome of every draw. The
// measure is the total variation, the cases are the ways that the draws can fall.
struct ExactCase {
  TableModel::Options target{.vocab = 3};
  std::vector<Tokens> prompts{};  // all of one case are decoded in one engine: their joint law is a product
  bool samples = false;           // the prompts are equal, and the texts samples of one request
  int tokens = 3;                 // of every text that are looked at
  int max_new_tokens = 0;         // 0: tokens + 3, so that no limit is near; else the length limit
  Scenario scenario{};
  Tokens stop{};  // a text that ends a request, wherever a draft is cut by it; empty: none
  long most_ways =
      0;  // where the draws can fall in more ways, one token fewer is looked at, and so on down to `least`; 0: no bound
  int least = 2;
  bool remembers = true;      // false: the enumerator that forgets names, to show what it misses
  Renaming::Rename rename{};  // a planted bug of naming
  std::function<std::unique_ptr<HostBackend>()> backend{};                   // null: reference
  std::function<std::shared_ptr<Model>(std::shared_ptr<Model>)> disguise{};  // a planted bug of the target
};
Finding exact(const Subject& subject, const ExactCase& c);

// sampled: the same, with the engine's own draws, by a joint chi-square whose sample finds a total variation of `found`
// with 99 % power at `level`. The measure is the p-value; the caller corrects for many (Holm).
struct SampledCase {
  TableModel::Options target{.vocab = 3};
  Tokens prompt{0, 1};
  int tokens = 2;
  double found = 0.01, level = 1e-3;
  Scenario scenario{.engine = {.batch = 64, .step_rows = 1024, .page_rows = 4, .pages = 2048}};
  Renaming::Rename rename{};
};
Finding sampled(const Subject& subject, const SampledCase& c, HostBackend& backend);

// same_text: the texts of a subject are those of plain decoding under the same verifier. At temperature 0 this is
// `greedy`, with a verifier that promises it `coupled`.
Finding same_text(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                  std::span<const TestRequest> requests);

// batch: a sequence alone and in a crowd says the same. `crowds` are the scenarios of the crowd; where trees differ (a
// crowded drafter may have less room) the comparison of that text ends, unless `whole` demands the text in any case.
struct CrowdCase {
  std::vector<Scenario> crowds;
  bool whole = false;
};
// `seen` tells of "preemptions" and "prefix rows".
Finding batch(const Subject& subject, const Scenario& alone, const CrowdCase& c, Backend& backend, const Models& models,
              std::span<const TestRequest> requests);

// memory: in every step, a drafter that lived through the whole run proposes what a fresh one proposes, tokens and
// laws.
Finding memory(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
               std::span<const TestRequest> requests);

// cache: after every step every cache holds ceil(length / page) pages and the keys and values of a fresh prefill, bit
// for bit; nothing is held at the end.
Finding cache(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
              std::span<const TestRequest> requests);

// tree = chain: the logits of every node of a random tree equal those of its path run alone, bit for bit.
Finding tree_is_chain(Backend& backend, std::shared_ptr<Model> model, int nodes, std::uint64_t seed);

// limits: a drafter whose models are the target has every guess accepted; a budget of 0 is plain decoding.
Finding twin_accepts_all(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                         std::span<const TestRequest> requests);
Finding no_budget_is_plain(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                           std::span<const TestRequest> requests);

// acceptance: by position, the measured acceptance of chains lies where the laws p and q say. The measure is the
// greatest |z|.
Finding acceptance(const Subject& subject, const Scenario& scenario, Backend& backend,
                   const TableModel::Options& target, std::span<const TestRequest> requests);

// causal: whether a node exists is decided before its token is drawn. In every round, every draw of a fresh drafter is
// forced to every token that it might have given: the node must be there all the same, and all nodes before it
// unchanged.
Finding causal(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
               std::span<const TestRequest> requests);

// device: given the same logits and draws, the laws, the tokens drawn and the verdicts of a chain of `nodes` are equal
// bit for bit.
struct DeviceCase {
  int vocab = 61, sequences = 24, nodes = 4;
  std::uint64_t seed = 1;
};
Finding same_verdicts(const Subject& subject, const DeviceCase& c, Backend& reference, Backend& other);
// And so, where a model gives the same logits everywhere, are whole texts; and drafters' models are fed as many rows,
// so no cache forgets on one device what it keeps on the other.
Finding same_on_devices(const Subject& subject, const Scenario& scenario, Backend& reference, Backend& other,
                        const Models& models, std::span<const TestRequest> requests);

}  // namespace foretoken::conformance

// Laws that compare directly what a component did with what it must have done, and enumerate nothing: so they see large
// batches, the widest and the deepest trees, long texts and many sequences at little cost.
#pragma once
#include "experiments/conformance/law_table.h"

namespace foretoken::conformance {

// The subject under budgets of all sizes in turn, up to the largest tree and the longest chain, unless its policy was
// chosen.
Subject under_all_budgets(const Candidate& c);

// Of the law `causal`: in every call of Drafter::draft, each node that is called drawn holds the token of a draw of
// this call from the distribution that its kind and the proposal state, and no two draws, of whichever sequences, have
// one name. Races have no names of their own: they share the noise of their position.
Finding drawn_as_called(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
                        std::span<const TestRequest> requests);

// Of the law `rounds`: the verdicts of many trees are those of each tree alone.
Finding same_verdicts_alone(const Subject& subject, const DeviceTreesCase& c);

// Of the law `memory`, without an engine: in a batch of 24 sequences, through 72 rounds, a length policy gives each the
// budget that a policy gives which saw this sequence alone, and none above PolicyTraits::most; and thousands of
// sequences that ended leave no memory in use.
Finding policy_in_company(const Subject& subject, HostBackend& backend, const Models& models);
// Of the law `memory`: a drafter, one that learns too, proposes for a sequence with the id of one that it was told to
// forget what it proposes for one with an id that it never met. Nothing is compared where two such ids that it never
// met get different proposals already.
Finding forgotten_ids(const Subject& subject, HostBackend& backend, const Models& models);
// Of a drafter that does not learn: thousands of sequences that were drafted for and forgotten leave no memory in use.
Finding nothing_left(const Subject& subject, HostBackend& backend, const Models& models);
// A run beside another engine in the process, whose sequences have the same ids, streams and turns and other texts,
// has the trees of the same run alone. Of components that learn, where two runs alone have equal trees.
Finding beside_another_engine(const Subject& subject, const Scenario& scenario, HostBackend& backend,
                              const Models& models, std::span<const TestRequest> requests,
                              std::span<const TestRequest> others);

}  // namespace foretoken::conformance

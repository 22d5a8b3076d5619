// A drafter proposes a tree of tokens for each sequence; the target verifies it in one forward (Leviathan et al. 2023,
// arXiv 2211.17192). A drafter has no random generator of its own, since all draws are named by the request, never
// rolls back a cache, and may be skipped for any number of steps. This module must not know which verifier is used.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/cache/cached_model.h"
#include "framework/components/step_report.h"
#include "framework/components/verifier.h"
#include "framework/decode/draft_tree.h"
#include "framework/decode/sequence.h"

namespace foretoken {

// One sequence to draft for.
struct DraftRequest {
  // A copy whose last tokens are a path of another draft (Sequence::verified) where Needs::below_drafts allows it: the
  // request then stands on a node of a tree that an outer drafter grows.
  const Sequence* sequence = nullptr;
  Budget budget;      // the most nodes and levels of the tree; where !budget.drafts(), a bare root is returned and the
                      // drafter's own model only reads tokens that its cache lacks
  int rows = 0;       // the most rows that the drafter's own model may spend on such tokens in this step; the sum over
                      // all requests of a step is at most EngineOptions::step_rows
  Draws draws;        // pass on to Backend::draw; role draft, node = the node that is drawn
  bool race = false;  // draws must be races by absolute position (TokenDraw::race), since the verifier is coupled
  // The target's states that Needs::hidden names, of all positions whose tokens it has read: all but the last of
  // `sequence`, fewer while a prompt is read. To be read by forwards of this call of draft() alone.
  HiddenStates hidden = {};

  // The named draw of node `node` at depth `depth` (1: directly below the root).
  TokenDraw draw(int node, int depth, int sibling = 0) const {
    return {draws,
            {Role::draft, std::uint32_t(node), std::uint32_t(sibling)},
            std::uint32_t(sequence->length() + depth - 1),
            race};
  }
};

// A bare root for each request, in order: the sequence's last token, with capacity for the budget's nodes.
std::vector<DraftTree> rooted(Backend& backend, std::span<const DraftRequest> requests);

// The result of verifying one tree, for drafters that adapt. Pointers and `ranks` are valid during Drafter::observe
// only; copy what is needed later.
struct Outcome {
  const Sequence* sequence = nullptr;
  const DraftTree* tree = nullptr;   // with the token -1 where a node is aside
  const Verdict* verdict = nullptr;  // all that was accepted, also behind the end of the output
  // i32 [nodes, k], host; k: Needs::ranks, or more where a drafter around it or within it needs more. The target's most
  // probable tokens after each node of the tree, most probable first: of its distribution at temperature 1, with
  // penalties and biases applied, and before top-k, top-p and min-p cut it. -1 where fewer tokens have any probability,
  // and where the logits are not finite.
  Tensor ranks = {};
};

// The traits of a drafter (Entry::traits): the engine and the pairing rules read these, never its name.
struct Needs {
  // Kinds of nodes that it may draw; the verifier must take each of them. Those drawn aside need not be named.
  std::vector<Drawn> proposes = {};
  // Its proposals may depend on more than the tokens and options of their own request: on other requests, on outcomes
  // (of their own too), or on times (Backend::mark and Backend::clock; of no other clock, which no test could set). It
  // is exempt from the conformance kit's memory law, whose second drafter has observed nothing, and a sweep measures it
  // cold and warm. All other laws apply.
  bool learns = false;
  int ranks = 0;  // how many of the target's most probable tokens after each node an Outcome has
  // States of the target that a DraftRequest has; they are kept in the target's pages.
  std::vector<Tap> hidden = {};
  // It drafts by a part of the target that views the target's cache (Host::view_of_target).
  bool views_target = false;
  // Such a view selects pages in every layer (PageChoice::selects): the target's pages have room for bounds of its
  // keys.
  bool page_bounds = false;
  bool confidence = false;  // implements Budget::confidence; otherwise a policy that sets it is an Error
  bool waits = false;       // draft() waits for the device, at most once before the first level and once a level of the
                            // budget, and of each budget that it gives to a drafter within it; without it too where the
                            // budget sets Budget::confidence
  bool any_tree = false;    // observe() reads trees that others drew, too, so one that is made of it gives it those
  bool own_trees = false;   // a drafter within it learns from outcomes of its own trees alone
  // It drafts below a path that is not verified (Sequence::verified), several times in a step: of a sequence it keeps
  // nothing but rows of caches, which settle by themselves, or what it sets right itself. It hears no outcome of such
  // trees, so what learns from outcomes has no use for it.
  bool below_drafts = false;
  // It has an inner verifier, which draws races (Soundness::race) or does not: the outer one must do the same. Where
  // noise is named by position alone, a second round meets what the first one has looked at.
  std::optional<bool> races = {};
  Budget whole = {};  // the least that lets it draft the shape that a user asked for; {}: it fits any budget
};

// Throws Error, whose message begins with `who`, for needs that are not implemented.
void expect_served(const Needs& needs, const std::string& who);

class Drafter {
 public:
  using Traits = Needs;
  virtual ~Drafter() = default;
  // One tree per request, in order, each within its budget. Whether a node exists must be decided before its token is
  // drawn, never by its own token; otherwise the output distribution changes. So it does where guesses follow from what
  // another request with the same seed and stream did, in this engine or, by what is kept, in an earlier one: the draws
  // that judge them are those that made them. If it throws, it is called again with each request alone and the same
  // draws; only the requests for which it throws again fail, and it is then called with the others together. A throw
  // for no single request is an Error of the whole step.
  virtual std::vector<DraftTree> draft(std::span<const DraftRequest> requests) = 0;
  // After a step: called once for each sequence that was verified, with its outcome alone. If it throws, that sequence
  // fails; the others' outcomes are observed once all the same. Work for many sequences at once belongs in draft().
  // One that is made of others gives each of them the outcomes of trees that it drew, and other trees to those alone
  // that state Needs::any_tree. So a step in which its tree was not verified has no outcome for an inner drafter.
  virtual void observe(std::span<const Outcome> outcomes) { (void)outcomes; }
  // After every step, its outcomes observed: what was drafted and accepted, and the time of each phase
  // (LengthPolicy::observe). Proposals that depend on it depend on other requests and on times: Needs::learns. An
  // exception is an Error of the step. A drafter that is made of others passes it on.
  virtual void observe_step(const StepReport& report) { (void)report; }
  // One sentence for the user about what the drafter did that no figure shows, as that it forgot something it had
  // learned: on standard error and in results. Empty: nothing. A drafter that is made of others passes it on.
  virtual std::string notice() const { return {}; }
  // Frees what the drafter holds for the sequence: its pages always (CachedModel::forget), as an engine expects of
  // every cache that the drafter got from its host. Where Sequence::running(), the sequence goes on: it was preempted,
  // or its pages are needed by another, and it may be drafted for again; what takes no pages may be kept till then.
  // Else it has ended (Sequence::finish says how), it is the last call for it, and its id may come again for another
  // sequence. If it throws, or leaves rows of the sequence in such a cache, the sequence fails and its pages are freed.
  virtual void forget(const Sequence& sequence) { (void)sequence; }
};

}  // namespace foretoken

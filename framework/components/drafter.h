// A drafter guesses, the target verifies, nothing is lost. A drafter never owns a random generator, never rolls
// anything back and never hears who verifies its trees; it may be skipped for any number of steps.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/components/verifier.h"
#include "framework/decode/draft_tree.h"
#include "framework/decode/sequence.h"

namespace foretoken {

// One sequence for which a tree is wanted.
struct DraftRequest {
  const Sequence* sequence = nullptr;
  Budget budget;      // the most nodes and levels of the tree; where it has no room below the root no tree is wanted,
                      // only catching up
  int rows = 0;       // the most rows that the drafter's own model may spend on catching up in this step; those of all
                      // requests of a step together are no more than a step may have
  Draws draws;        // hand on to Backend::draw; role draft, node = the node that is drawn
  bool race = false;  // draws must be races by absolute position (TokenDraw::race), since the verifier couples
  // Of the drafter's unseen positions, in order: device addresses of the target's hidden states that Needs::hidden
  // names, one after another for each position.
  std::span<const std::uint64_t> hidden = {};

  // The draw that decides node `node` at depth `depth` (1: directly below the root).
  TokenDraw draw(int node, int depth, int sibling = 0) const {
    return {draws,
            {Role::draft, std::uint32_t(node), std::uint32_t(sibling)},
            std::uint32_t(sequence->length() + depth - 1),
            race};
  }
};

// How a draft begins: a tree for each request, its root the sequence's last token, with room for the budget.
std::vector<DraftTree> rooted(Backend& backend, std::span<const DraftRequest> requests);

// What became of the last tree, for whoever learns from it. All that it points to and `ranks` are valid during
// Drafter::observe alone: what is needed later must be copied.
struct Outcome {
  const Sequence* sequence = nullptr;
  const DraftTree* tree = nullptr;
  const Verdict* verdict = nullptr;
  Tensor ranks = {};  // i32 [nodes, Needs::ranks], host: the target's most probable tokens after each node of the tree
};

// What a drafter wants and does, so that nobody asks who it is.
struct Needs {
  std::vector<Drawn> proposes;  // kinds of nodes that it may draw; a verifier must take each of them
  bool learns = false;          // what it proposes may depend on other requests (exempt from the memory law)
  int ranks = 0;                // so many of the target's most probable tokens after each fed node come with an Outcome
  std::vector<int> hidden = {};  // after which layers of the target it wants hidden states with a DraftRequest
  bool confidence = false;       // it serves Budget::confidence; else a policy that sets it is refused
};

// Throws Error, which begins with `who`, where these are needs that nothing serves yet.
void expect_served(const Needs& needs, const std::string& who);

class Drafter {
 public:
  using Traits = Needs;
  virtual ~Drafter() = default;
  // To be overridden only where Entry::traits is empty: then nothing is known before the drafter is made.
  virtual Needs needs() const;
  Traits traits() const { return declared_ ? *declared_ : needs(); }
  // One tree per request, in order, each within its budget. Whether a node exists is decided before its token is drawn
  // (never by its own token). Where it throws it is asked again: about each request alone, with the same draws, so that
  // only those fail for which it throws again, then about the others together.
  virtual std::vector<DraftTree> draft(std::span<const DraftRequest> requests) = 0;
  // Called once for each outcome, alone, so that only that sequence fails for which it throws, and the others' outcomes
  // are observed once all the same. What is worth doing for many at once can be done in the next draft().
  virtual void observe(std::span<const Outcome> outcomes) { (void)outcomes; }
  // The sequence ends or must give back its memory; its tokens are final for now. It may come back later. A sequence
  // for which it throws fails, and its pages are taken back without the drafter.
  virtual void forget(const Sequence& sequence) { (void)sequence; }

 protected:
  template <class T> friend class Registry;
  std::optional<Needs> declared_;  // by Entry::traits
};

}  // namespace foretoken

// A drafter's proposal: a tree of tokens below the last token of a sequence, and how its nodes were drawn. The host
// knows the shape (nodes, parents) and the tokens that it guessed; tokens that the device drew stay on the device until
// the step's one readback. A chain is a tree with one child per node; no speculation is a bare root. Trees of tokens:
// Miao et al. 2023 (SpecInfer, arXiv 2305.09781). This module must not know drafters, verifiers or models.
#pragma once
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace foretoken {

constexpr int kMaxPath = 64;    // the most levels below the root of a draft tree
constexpr int kMaxNodes = 256;  // the most nodes of a draft tree, the root included, on every device
// A branch leaves the first path of its tree at the root or at one of kMaxPath - 1 levels below: Layout::visible.
static_assert(kMaxPath - 1 <= kMostVisibleApart);

// How large a draft tree may be. Nodes are rows of the target's forward, so the root counts: 64 nodes fill 64 rows.
// Depth is the number of levels below the root. A chain of g tokens has depth g and g + 1 nodes.
struct Budget {
  int nodes = 0, depth = 0;
  float confidence = 0;  // a node gets no children where the draft's greatest probability after it (temperature 1, no
                         // top-k, top-p or min-p) is less; 0: off
  // At least one node below the root.
  bool drafts() const { return nodes > 1 && depth > 0; }
  // The most tokens of a chain below the root.
  int chain() const { return drafts() ? std::min(nodes - 1, depth) : 0; }
  // This budget, or that of a bare root where it allows no node below the root.
  Budget or_root() const { return drafts() ? *this : Budget{1, 0, 0}; }
  bool operator==(const Budget&) const = default;
};

// How a node's token was chosen. A verifier's promise holds for some of these only (Soundness::takes).
enum class Drawn : std::uint8_t {
  certain,              // not drawn: a deterministic guess, its q is one-hot
  chain,                // an only child, drawn from q
  independent,          // siblings drawn i.i.d. from q (SpecInfer, arXiv 2305.09781)
  without_replacement,  // siblings drawn from q in order, without repeats (Sequoia, arXiv 2402.12374)
  marginals,            // drawn from a q that is not conditioned on the drawn tokens before it (parallel drafters)
  aside                 // fed for the target's rows at it (Outcome::ranks) and never judged, nor what is below it: what
                        // judges sees an absent guess in its place. Any drafter may add such nodes
};
const char* name_of(Drawn d);

struct Proposal {
  Tensor drawn;                              // u8 [nodes], host: the Drawn of each node (the root's is not used)
  std::vector<Distributions> distributions;  // distributions[n]: one row, the distribution from which the children of
                                             // node n were drawn; absent or beyond the end where no child was drawn
};

// Node 0 is the root: the last token of the sequence. parents[n] < n. A node with the token -1 is absent: it and its
// descendants are masked, and verifiers skip them.
struct DraftTree {
  static constexpr Token kUnread = -2;  // in `known`: the device drew the token, and the host has not read it yet

  int nodes = 1;
  Tensor parents;  // i32 [capacity >= nodes], host; parents[0] = -1
  Tensor known;    // i32 [capacity >= nodes], host: the tokens that the host knows, else kUnread; complete after the
                   // step's readback
  Tensor tokens;   // i32 [capacity >= nodes], on the device: the drawn tokens. The same memory as `known` on a host
                   // backend, and where no tree of the batch has capacity below its root
  Proposal q;

  // A bare root with capacity for a tree of this budget, or for `more` nodes below it.
  static DraftTree rooted(Backend& backend, Token root, const Budget& budget);
  static DraftTree rooted(Backend& backend, Token root, int more);
  struct Root {
    Token token = 0;
    int more = 0;
  };
  // One tree for each root. The trees share one allocation, in order, which lives as long as any of them.
  static std::vector<DraftTree> rooted(Backend& backend, std::span<const Root> roots);
  // Adds a node below `parent` whose token the device has written, or will write, to tokens[nodes], be it drawn or a
  // guess (Drawn::certain) that the device chose; returns its index.
  // An Error where the capacity is used up.
  int grow(int parent, Drawn how);
  // Adds a guess whose token the host knows; returns its index. An Error as grow().
  int guess(int parent, Token token, Drawn how = Drawn::certain);
  // The first child of `parent`, not one aside, whose token the host knows to be `token`, -1 where there is none: so
  // that paths with a common beginning share its nodes.
  int match(int parent, Token token) const;
  bool aside(int n) const { return Drawn(*q.drawn.row<std::uint8_t>(n)) == Drawn::aside; }
  // Whether its token was drawn: neither a guess nor aside.
  bool random(int n) const { return Drawn(*q.drawn.row<std::uint8_t>(n)) != Drawn::certain && !aside(n); }
  // The device address of the token of node n; null where the host knows it.
  const Token* drawn_at(int n) const { return *known.row<Token>(n) == kUnread ? tokens.row<Token>(n) : nullptr; }
};

// The limits of a drafter's tree.
struct TreeBounds {
  Token root = 0;  // the sequence's last token
  Budget budget;
  int vocab = 0;
  std::span<const Drawn> takes;     // by the verifier
  std::span<const Drawn> proposes;  // what the drafter said that it may draw
};
// Throws Error, whose message begins with `who`, unless the tree is valid: it has the root, at most the budget's nodes
// and levels, and no more nodes than its arrays have capacity for; every parent comes before its children; every node's
// Drawn is aside, or one that the drafter proposes and the verifier takes; what is below a node aside is aside too; a
// node drawn `chain` has no siblings; every token that the host knows is one of the vocabulary or -1.
void expect_tree(const DraftTree& tree, const TreeBounds& bounds, const std::string& who);
// Likewise, when the host has read all tokens: each is one of the vocabulary or absent, and siblings that were drawn
// without replacement differ.
void expect_tokens(const DraftTree& tree, int vocab, const std::string& who);

}  // namespace foretoken

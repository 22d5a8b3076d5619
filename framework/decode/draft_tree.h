// What a drafter proposes: a tree of guessed tokens below the last token of a sequence, and how its nodes were drawn.
// The host knows the shape (nodes, parents) and the tokens that it guessed; what the device drew stays there until the
// step's one readback. Absorbs the ends: no speculation is a bare root, a chain is a tree.
#pragma once
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace foretoken {

constexpr int kMaxPath = 64;    // the most levels below the root of a draft tree
constexpr int kMaxNodes = 256;  // the most nodes of a draft tree, the root included, on every device

// How large a draft tree may be. Nodes are rows of the target's forward, so the root counts: 64 nodes fill 64 rows.
// Depth is the number of levels below the root. A chain of g tokens has depth g and g + 1 nodes.
struct Budget {
  int nodes = 0, depth = 0;
  float confidence = 0;  // no children of a node after which the draft's greatest probability (at temperature 1,
                         // nothing cut) is less; 0: off
  // At least one node below the root.
  bool drafts() const { return nodes > 1 && depth > 0; }
  // The most tokens of a chain below the root.
  int chain() const { return drafts() ? std::min(nodes - 1, depth) : 0; }
  // The same, or a bare root where nothing fits below it.
  Budget or_root() const { return drafts() ? *this : Budget{1, 0, 0}; }
  bool operator==(const Budget&) const = default;
};

// How a node's token came about, since that is what a proof of losslessness rests on.
enum class Drawn : std::uint8_t {
  certain,              // no draw: a deterministic guess, its distribution is one-hot
  chain,                // the one child, drawn from q
  independent,          // siblings i.i.d. from q
  without_replacement,  // siblings drawn from q in order, no repeats
  marginals,            // drawn from a q that does not see the drawn tokens before it (parallel drafters)
  aside                 // fed and never judged: its rows and what the target says there are all that is wanted
};
const char* name_of(Drawn d);

struct Proposal {
  Tensor drawn;                              // u8 [nodes], host: the Drawn of each node (the root's means nothing)
  std::vector<Distributions> distributions;  // distributions[n]: one row, the distribution from which the children of
                                             // node n were drawn; may be shorter, or empty where all are certain
};

// Node 0 is the root: the last token of the sequence. parents[n] < n. A token of -1 is absent: it is masked, its
// descendants too, and verifiers skip it.
struct DraftTree {
  static constexpr Token kUnread = -2;  // of `known`: the device drew it, and the host has not read it yet

  int nodes = 1;
  Tensor parents;  // i32 [capacity >= nodes], host; parents[0] = -1
  Tensor known;    // i32 [capacity >= nodes], host: tokens as far as the host knows them, all of them after the step's
                   // readback
  Tensor tokens;   // i32 [capacity >= nodes], on the device: what was drawn. On a host device, or where nothing can be
                   // drawn, the same memory as `known`
  Proposal q;

  // A root with room for a tree of this budget, or for `more` nodes below it.
  static DraftTree rooted(Backend& backend, Token root, const Budget& budget);
  static DraftTree rooted(Backend& backend, Token root, int more);
  struct Root {
    Token token = 0;
    int more = 0;
  };
  // One tree for each of many roots. They share their memory, which lives as long as any of them.
  static std::vector<DraftTree> rooted(Backend& backend, std::span<const Root> roots);
  // Adds a node below `parent` whose token the device already wrote (or will write) to tokens[nodes]; returns its
  // index. Throws Error where the tree has no room left.
  int grow(int parent, Drawn how);
  // Adds a guess that the host knows.
  int guess(int parent, Token token);
  // Where the device finds the token of node n: null where the host knows it.
  const Token* drawn_at(int n) const { return *known.row<Token>(n) == kUnread ? tokens.row<Token>(n) : nullptr; }
};

// What a drafter's tree is held to.
struct TreeBounds {
  Token root = 0;  // the sequence's last token
  Budget budget;
  int vocab = 0;
  std::span<const Drawn> takes;     // by the verifier
  std::span<const Drawn> proposes;  // what the drafter said that it may draw
};
// Throws Error, which begins with `who`, unless a drafter may return this tree: at least the root, no more nodes and
// levels than the budget has and no more nodes than its arrays have room for, every parent before its children, every
// node drawn in one of the ways that the drafter named and the verifier takes, every token that the host knows one of
// the vocabulary.
void expect_tree(const DraftTree& tree, const TreeBounds& bounds, const std::string& who);

}  // namespace foretoken

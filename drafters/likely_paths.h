// The most probable continuations of a text by how often they followed its last tokens in a suffix tree: the greedy
// expansion of SuffixDecoding (arXiv 2411.04975). The probability of a token behind a pattern is the number of its
// occurrences there over that of all tokens that follow the pattern; that of a path is their product. This module must
// not know requests or drafters.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "drafters/suffix_tree.h"
#include "framework/decode/draft_tree.h"

namespace foretoken {

// Where the last tokens of a text occurred before: in a tree, and in what of the text itself the tree does not have.
class Occurrences {
 public:
  static constexpr int kMostTail = 64;

  // `uncounted`: suffixes of `text` from here on are not in the tree, and are compared one by one. They are less than
  // kMostTail; text.size(): the tree is of other texts. Matches of up to `longest` tokens are looked for.
  Occurrences(const SuffixTree& tree, std::span<const Token> text, int uncounted, int longest);

  // The most last tokens that occurred before, in the tree or in the text, at most `longest`.
  int longest() const { return longest_; }
  int depth() const { return tree_.depth(); }  // the most tokens of a pattern and of what follows it

  // All occurrences of a pattern.
  struct Spot {
    std::optional<SuffixTree::Place> place;
    std::uint64_t tail = 0;  // bit i: text[tail_begin + i] follows an occurrence that is not in the tree
  };
  Spot last(int tokens) const;  // of the last tokens, 1 to longest()
  struct Next {
    Token token;
    std::uint32_t count;
    SuffixTree::Position latest;  // in the tree; behind all of it where it is in the tail
    Spot spot;
  };
  std::uint32_t followed(const Spot& spot) const;  // how many occurrences are followed by any token
  // Fills `to` with the tokens that follow `spot` at least `least` times: the `most` most frequent ones, perhaps more
  // and rarer ones, the most frequent first, among equals the latest.
  void next(const Spot& spot, int most, double least, std::vector<Next>& to) const;

 private:
  std::uint64_t followed_by(std::uint64_t tail, Token token) const;

  const SuffixTree& tree_;
  std::span<const Token> text_;
  int tail_begin_, longest_ = 0;
  int in_tree_ = 0;  // if not 0: so many last tokens end at place_ in the tree
  SuffixTree::Place place_;
  std::array<std::uint64_t, kMostTail> tails_{};  // [n]: of the last n tokens
  mutable std::vector<SuffixTree::Child> children_;
};

struct Guesses {
  struct Node {
    int parent;  // -1: the root
    Token token;
  };
  std::vector<Node> nodes;
  double score = 0;  // the sum of the nodes' probabilities: how many of them are expected to be accepted
};

struct PathLimits {
  double factor = 1;  // at most this many nodes for each token of the match
  double least = 0;   // of a node's probability
};

// The tree of the match, up to the longest one, whose score is best; among equals that of the longest match. Only its
// nodes that `budget` allows. `known`, where none is better.
Guesses likely_paths(const Occurrences& occurrences, const PathLimits& limits, const Budget& budget,
                     Guesses known = {});

}  // namespace foretoken

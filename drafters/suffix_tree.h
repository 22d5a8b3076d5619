// How often every sequence of up to a few tokens occurs in texts, and what follows it: a suffix tree with counts whose
// suffixes are cut to a length (Weiner 1973; for drafting: SuffixDecoding, arXiv 2411.04975). Each edge names the
// latest occurrence of its tokens, so that the oldest suffixes can be removed again and their tokens dropped (Fiala and
// Greene 1989). A suffix costs a lookup for each branching on its path; a token takes about 150 bytes. This module must
// not know drafters, trees of guesses or budgets.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/distribution.h"

namespace foretoken {

class SuffixTree {
 public:
  using Position = std::uint32_t;  // in the text, from 0 on; differences alone are used, so it may wrap around

  // `depth`: the most tokens of a suffix, 1 to 255.
  explicit SuffixTree(int depth) : depth_(depth), nodes_(1), edges_(16) {}

  int depth() const { return depth_; }
  Position end() const { return begin_ + Position(text_.size() - dropped_); }

  void append(std::span<const Token> tokens) { text_.insert(text_.end(), tokens.begin(), tokens.end()); }
  // Counts the suffix text[at, at + length), length <= depth. Its tokens must stay until it is removed.
  void insert(Position at, int length);
  // Takes back the oldest suffix that is counted: suffixes leave in the order in which they came.
  void remove(Position at, int length);
  // Drops the tokens before `at`, which no counted suffix has.
  void drop_before(Position at);

  // Where a pattern ends: in the edge of `node`, `depth` tokens below the root.
  struct Place {
    std::uint32_t node = 0;
    int depth = 0;
  };
  // Fetches into the processor's cache what a search for a pattern of two or more tokens, or a suffix, begins with:
  // where that of many is fetched first, they do not wait for memory one after another.
  void prefetch(Token first, Token second) const {
    const std::uint32_t node = below(0, first);
    __builtin_prefetch(&nodes_[node]);
    __builtin_prefetch(&edges_[home(node, second)]);
  }
  // Absent where no suffix begins with the pattern.
  std::optional<Place> find(std::span<const Token> pattern) const;
  std::optional<Place> child(Place p, Token token) const;
  // The number of suffixes that begin with the pattern of `p`, and of those that go on behind it.
  std::uint32_t count(Place p) const { return nodes_[p.node].count; }
  std::uint32_t followed(Place p) const {
    const Node& n = nodes_[p.node];
    return p.depth < int(n.depth) ? n.count : n.count - n.ends;
  }
  struct Child {
    Token token;
    std::uint32_t count;
    Position latest;  // of the token, in the latest suffix that has it here
    Place place;
  };
  // Appends up to `most` tokens that follow the pattern of `p` at least `least` times, the most frequent first.
  void children(Place p, int most, double least, std::vector<Child>& to) const;

  std::int64_t bytes() const;  // that it holds, capacities included

 private:
  struct alignas(32) Node {  // two to a line of a processor's cache: lookups are what takes time
    Position at = 0;  // where the latest suffix begins that has this node: its edge is text[at + depth of the parent,
                      // at + depth)
    std::uint32_t count = 0, ends = 0;  // suffixes that have it, and those that end at it
    std::uint32_t parent = 0;           // of a free node: the next free one
    std::uint32_t place = 0;            // among the children of the parent, which are in the order of their counts
    Token token = 0;                    // the first of its edge
    std::uint32_t children = 0;         // in lists_
    std::uint32_t number : 24 = 0;      // of children
    std::uint32_t depth : 8 = 0;
  };
  struct Edge {
    Token token = 0;
    std::uint32_t node = 0;  // below it; 0: no edge
  };

  Token token(Position at) const { return text_[std::size_t(at - begin_) + dropped_]; }
  std::size_t home(std::uint32_t parent, Token token) const;
  std::size_t slot(std::uint32_t parent, Token token) const;
  std::uint32_t below(std::uint32_t parent, Token token) const { return edges_[slot(parent, token)].node; }
  void add_edge(std::uint32_t parent, Token token, std::uint32_t node);
  void erase_edge(std::size_t at);
  std::uint32_t new_node(const Node& node);
  void free_node(std::uint32_t node);
  std::uint32_t& listed(const Node& parent, std::uint32_t place) { return lists_[parent.children + place]; }
  std::uint32_t new_list(std::uint32_t capacity);
  void free_list(std::uint32_t at, std::uint32_t capacity);
  void resize_list(Node& parent, std::uint32_t number);
  void add_child(std::uint32_t parent, std::uint32_t node);
  void remove_child(std::uint32_t node);
  void swap_places(Node& parent, std::uint32_t a, std::uint32_t b);
  void raise(std::uint32_t node);
  void lower(std::uint32_t node);
  std::uint32_t split(std::uint32_t node, std::uint32_t depth);
  void join(std::uint32_t node);

  int depth_;
  std::vector<Token> text_;
  std::size_t dropped_ = 0;  // tokens at the front of text_ that are no longer in use
  Position begin_ = 0;       // of text_[dropped_]
  std::vector<Node> nodes_;  // [0]: the root
  std::uint32_t free_nodes_ = 0, used_edges_ = 0;
  std::vector<Edge> edges_;                     // by parent and token, open addressing; at most half are used
  std::vector<std::uint32_t> lists_;            // the children of nodes, in lists whose capacities are powers of two
  std::array<std::uint32_t, 33> free_lists_{};  // by log2 of the capacity; 0: none
};

}  // namespace foretoken

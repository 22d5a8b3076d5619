#include "drafters/suffix_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace foretoken {
namespace {

std::uint32_t list_capacity(std::uint32_t number) { return number == 0 ? 0 : std::max(2u, std::bit_ceil(number)); }

}  // namespace

void SuffixTree::insert(Position at, int length) {
  std::uint32_t node = 0;
  ++nodes_[0].count;
  for (std::uint32_t depth = 0; int(depth) < length; depth = nodes_[node].depth) {
    const Token first = token(at + depth);
    std::uint32_t next = below(node, first);
    if (next == 0) {
      next =
          new_node({.at = at, .count = 1, .ends = 1, .parent = node, .token = first, .depth = std::uint32_t(length)});
      add_edge(node, first, next), add_child(node, next);
      return;
    }
    const std::uint32_t end = std::min(nodes_[next].depth, std::uint32_t(length));
    std::uint32_t same = depth + 1;
    while (same < end && token(nodes_[next].at + same) == token(at + same)) ++same;
    if (same < nodes_[next].depth) next = split(next, same);
    nodes_[next].at = at;
    raise(next), node = next;
  }
  ++nodes_[node].ends;
}

void SuffixTree::remove(Position at, int length) {
  std::uint32_t node = 0;
  --nodes_[0].count;
  for (std::uint32_t depth = 0; int(depth) < length; depth = nodes_[node].depth) {
    node = below(node, token(at + depth));
    lower(node);
  }
  --nodes_[node].ends;
  while (node != 0 && nodes_[node].count == 0) {
    const std::uint32_t parent = nodes_[node].parent;
    erase_edge(slot(parent, nodes_[node].token));
    remove_child(node), free_node(node);
    node = parent;
  }
  if (node != 0 && nodes_[node].number == 1 && nodes_[node].ends == 0) join(node);
}

void SuffixTree::drop_before(Position at) {
  dropped_ += std::size_t(at - begin_), begin_ = at;
  if (dropped_ <= text_.size() / 2) return;  // each token is moved about once
  text_.erase(text_.begin(), text_.begin() + std::ptrdiff_t(dropped_));
  dropped_ = 0;
}

std::optional<SuffixTree::Place> SuffixTree::find(std::span<const Token> pattern) const {
  Place p;
  while (p.depth < int(pattern.size())) {
    const std::optional<Place> next = child(p, pattern[std::size_t(p.depth)]);
    if (!next) return std::nullopt;
    p = *next;
  }
  return p;
}

std::optional<SuffixTree::Place> SuffixTree::child(Place p, Token next) const {
  const Node& n = nodes_[p.node];
  if (p.depth < int(n.depth)) {
    if (token(n.at + Position(p.depth)) != next) return std::nullopt;
    return Place{p.node, p.depth + 1};
  }
  const std::uint32_t node = below(p.node, next);
  if (node == 0) return std::nullopt;
  return Place{node, p.depth + 1};
}

void SuffixTree::children(Place p, int most, double least, std::vector<Child>& to) const {
  const auto add = [&](std::uint32_t node, Token next) {
    const Node& n = nodes_[node];
    if (n.count >= least) to.push_back({next, n.count, n.at + Position(p.depth), {node, p.depth + 1}});
    return n.count >= least;
  };
  const Node& n = nodes_[p.node];
  if (p.depth < int(n.depth)) {
    add(p.node, token(n.at + Position(p.depth)));
    return;
  }
  for (std::uint32_t i = 0; i < n.number && int(i) < most; ++i)
    if (const std::uint32_t node = lists_[n.children + i]; !add(node, nodes_[node].token)) break;
}

std::int64_t SuffixTree::bytes() const {
  return std::int64_t(text_.capacity() * sizeof(Token) + nodes_.capacity() * sizeof(Node) +
                      edges_.capacity() * sizeof(Edge) + lists_.capacity() * sizeof(std::uint32_t));
}

// A node in the middle of the edge of `node`, `depth` tokens below the root.
std::uint32_t SuffixTree::split(std::uint32_t node, std::uint32_t depth) {
  Node middle = nodes_[node];  // it takes the node's place below its parent
  middle.depth = depth, middle.ends = 0, middle.children = 0, middle.number = 0;
  const std::uint32_t upper = new_node(middle);
  listed(nodes_[middle.parent], middle.place) = upper;
  edges_[slot(middle.parent, middle.token)].node = upper;
  nodes_[node].parent = upper, nodes_[node].token = token(middle.at + depth);
  add_edge(upper, nodes_[node].token, node), add_child(upper, node);
  return upper;
}

// Undoes a split: a node with one child, at which no suffix ends, gives its place to the child.
void SuffixTree::join(std::uint32_t node) {
  const Node middle = nodes_[node];
  const std::uint32_t only = lists_[middle.children];
  erase_edge(slot(node, nodes_[only].token));
  listed(nodes_[middle.parent], middle.place) = only;
  edges_[slot(middle.parent, middle.token)].node = only;
  nodes_[only].place = middle.place, nodes_[only].token = middle.token, nodes_[only].parent = middle.parent;
  free_node(node);
}

// The counts of children.

void SuffixTree::swap_places(Node& parent, std::uint32_t a, std::uint32_t b) {
  std::swap(listed(parent, a), listed(parent, b));
  nodes_[listed(parent, a)].place = a, nodes_[listed(parent, b)].place = b;
}

// One more; it changes places with the first of those that had as many.
void SuffixTree::raise(std::uint32_t node) {
  Node& parent = nodes_[nodes_[node].parent];
  const std::uint32_t count = ++nodes_[node].count, place = nodes_[node].place;
  if (place == 0 || nodes_[listed(parent, place - 1)].count >= count) return;
  const auto list = lists_.begin() + parent.children;
  const auto first =
      std::partition_point(list, list + place, [&](std::uint32_t n) { return nodes_[n].count >= count; });
  swap_places(parent, std::uint32_t(first - list), place);
}

// One less; it changes places with the last of those that had as many.
void SuffixTree::lower(std::uint32_t node) {
  Node& parent = nodes_[nodes_[node].parent];
  const std::uint32_t count = --nodes_[node].count, place = nodes_[node].place;
  if (place + 1 == parent.number || nodes_[listed(parent, place + 1)].count <= count) return;
  const auto list = lists_.begin() + parent.children;
  const auto after = std::partition_point(list + place + 1, list + parent.number,
                                          [&](std::uint32_t n) { return nodes_[n].count > count; });
  swap_places(parent, std::uint32_t(after - list) - 1, place);
}

void SuffixTree::add_child(std::uint32_t parent, std::uint32_t node) {
  Node& above = nodes_[parent];
  resize_list(above, above.number + 1);
  nodes_[node].place = above.number - 1;
  listed(above, above.number - 1) = node;
}

// A child that no suffix has any more, so that it is one of the last.
void SuffixTree::remove_child(std::uint32_t node) {
  Node& above = nodes_[nodes_[node].parent];
  swap_places(above, nodes_[node].place, above.number - 1);
  resize_list(above, above.number - 1);
}

// Memory of nodes, of lists of children, and of edges.

std::uint32_t SuffixTree::new_node(const Node& node) {
  std::uint32_t at = free_nodes_;
  if (at == 0) return nodes_.push_back(node), std::uint32_t(nodes_.size() - 1);
  free_nodes_ = nodes_[at].parent;
  nodes_[at] = node;
  return at;
}

void SuffixTree::free_node(std::uint32_t node) {
  resize_list(nodes_[node], 0);
  nodes_[node].parent = free_nodes_, free_nodes_ = node;
}

std::uint32_t SuffixTree::new_list(std::uint32_t capacity) {
  std::uint32_t& free = free_lists_[std::size_t(std::countr_zero(capacity))];
  if (free == 0) {
    if (lists_.empty()) lists_.resize(1);  // a list at 0 would not be told from none
    lists_.resize(lists_.size() + capacity);
    return std::uint32_t(lists_.size()) - capacity;
  }
  return std::exchange(free, lists_[free]);
}

void SuffixTree::free_list(std::uint32_t at, std::uint32_t capacity) {
  lists_[at] = std::exchange(free_lists_[std::size_t(std::countr_zero(capacity))], at);
}

// The list keeps what it has room for.
void SuffixTree::resize_list(Node& parent, std::uint32_t number) {
  const std::uint32_t before = list_capacity(parent.number), after = list_capacity(number);
  if (before != after) {
    const std::uint32_t to = after > 0 ? new_list(after) : 0;
    std::copy_n(lists_.begin() + parent.children, std::min(parent.number, number), lists_.begin() + to);
    if (before > 0) free_list(parent.children, before);
    parent.children = to;
  }
  parent.number = number;
}

std::size_t SuffixTree::home(std::uint32_t parent, Token token) const {
  const std::uint64_t key = std::uint64_t(parent) << 32 | std::uint32_t(token);
  return std::size_t((key * 0x9E3779B97F4A7C15u) >> (64 - std::countr_zero(edges_.size())));
}

// Where the edge is, or would be.
std::size_t SuffixTree::slot(std::uint32_t parent, Token token) const {
  std::size_t at = home(parent, token);
  while (edges_[at].node != 0 && !(edges_[at].token == token && nodes_[edges_[at].node].parent == parent))
    at = (at + 1) & (edges_.size() - 1);
  return at;
}

void SuffixTree::add_edge(std::uint32_t parent, Token token, std::uint32_t node) {
  if (2 * ++used_edges_ > edges_.size()) {
    std::vector<Edge> old(edges_.size() * 2);
    old.swap(edges_);
    for (const Edge& e : old)
      if (e.node != 0) edges_[slot(nodes_[e.node].parent, e.token)] = e;
  }
  edges_[slot(parent, token)] = {token, node};
}

// The edges behind it that it kept from their homes move up.
void SuffixTree::erase_edge(std::size_t at) {
  const std::size_t mask = edges_.size() - 1;
  for (std::size_t next = (at + 1) & mask; edges_[next].node != 0; next = (next + 1) & mask) {
    const std::size_t own = home(nodes_[edges_[next].node].parent, edges_[next].token);
    if (((next - own) & mask) < ((next - at) & mask)) continue;
    edges_[at] = edges_[next], at = next;
  }
  edges_[at] = {}, --used_edges_;
}

}  // namespace foretoken

#include "drafters/likely_paths.h"

#include <algorithm>
#include <bit>

namespace foretoken {
namespace {

// A token that may be guessed.
struct Candidate {
  double probability;
  int number;  // of the candidates; those above a node come before it
  int parent, depth;
  Token token;
  Occurrences::Spot spot;
  bool operator<(const Candidate& o) const {
    return probability != o.probability ? probability < o.probability : number > o.number;
  }
};

// Adds the most probable candidate until the budget has no more nodes.
Guesses expand(const Occurrences& occurrences, int match, const Budget& budget, double least) {
  const int most = budget.nodes - 1;
  Guesses made;
  std::vector<Candidate> heap;
  std::vector<Occurrences::Next> next;
  int number = 0;
  const auto add_children = [&](const Occurrences::Spot& spot, int parent, int depth, double above) {
    const int left = most - int(made.nodes.size());
    if (depth > budget.depth || left == 0) return;
    const double total = occurrences.followed(spot);
    occurrences.next(spot, left, least / above * total - 1e-6, next);  // rounded down
    if (next.empty() || next[0].count < double(budget.confidence) * total) return;
    for (int i = 0; i < std::min(left, int(next.size())); ++i) {
      const Occurrences::Next& n = next[std::size_t(i)];
      const double probability = above * (n.count / total);
      if (probability < least) break;
      heap.push_back({probability, number++, parent, depth, n.token, n.spot});
      std::push_heap(heap.begin(), heap.end());
    }
  };
  add_children(occurrences.last(match), -1, 1, 1);
  while (!heap.empty() && int(made.nodes.size()) < most) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    made.nodes.push_back({best.parent, best.token}), made.score += best.probability;
    add_children(best.spot, int(made.nodes.size()) - 1, best.depth + 1, best.probability);
  }
  return made;
}

}  // namespace

Occurrences::Occurrences(const SuffixTree& tree, std::span<const Token> text, int uncounted, int longest)
    : tree_(tree), text_(text), tail_begin_(std::max(0, int(text.size()) - kMostTail)) {
  const int size = int(text.size()), most = std::min({longest, size, tree.depth() - 1});
  // Occurrences in the tail, of one token more each time.
  std::uint64_t tail = 0;
  for (int at = uncounted + 1; at < size; ++at)
    tail |= std::uint64_t(text[std::size_t(at - 1)] == text.back()) << (at - tail_begin_);
  for (int n = 1; n <= most && tail != 0; ++n) {
    tails_[std::size_t(n)] = tail, longest_ = n;
    for (std::uint64_t left = tail; left != 0; left &= left - 1) {
      const int bit = std::countr_zero(left), before = tail_begin_ + bit - (n + 1);
      if (before < uncounted || text[std::size_t(before)] != text[std::size_t(size - n - 1)])
        tail &= ~(std::uint64_t(1) << bit);
    }
  }
  // What occurs does so with fewer tokens too, of more than in the tail in the tree.
  const auto has = [&](int tokens) {
    const auto place = tree.find(text.last(std::size_t(tokens)));
    if (place) longest_ = in_tree_ = tokens, place_ = *place;
    return place.has_value();
  };
  int absent = std::min(std::max(2, longest_ + 1), most), step = 1;  // most matches are short
  while (absent <= most && has(absent)) absent += step, step *= 2;
  absent = std::min(absent, most + 1);
  while (absent - longest_ > 1)
    if (const int middle = (longest_ + absent) / 2; !has(middle)) absent = middle;
}

Occurrences::Spot Occurrences::last(int tokens) const {
  return {tokens == in_tree_ ? place_ : tree_.find(text_.last(std::size_t(tokens))), tails_[std::size_t(tokens)]};
}

// Of the tokens in the tail those that are `token`.
std::uint64_t Occurrences::followed_by(std::uint64_t tail, Token token) const {
  std::uint64_t found = 0;
  for (; tail != 0; tail &= tail - 1)
    if (text_[std::size_t(tail_begin_ + std::countr_zero(tail))] == token) found |= tail & -tail;
  return found;
}

std::uint32_t Occurrences::followed(const Spot& spot) const {
  return (spot.place ? tree_.followed(*spot.place) : 0) + std::uint32_t(std::popcount(spot.tail));
}

void Occurrences::next(const Spot& spot, int most, double least, std::vector<Next>& to) const {
  to.clear(), children_.clear();
  if (spot.place) tree_.children(*spot.place, most, least, children_);
  for (const SuffixTree::Child& c : children_) to.push_back({c.token, c.count, c.latest, {c.place, 0}});
  const int size = int(text_.size());
  for (std::uint64_t left = spot.tail; left != 0;) {
    const Token token = text_[std::size_t(tail_begin_ + std::countr_zero(left))];
    const std::uint64_t same = followed_by(left, token);
    left &= ~same;
    auto known = std::ranges::find(to, token, &Next::token);
    if (known == to.end()) {  // rarer in the tree, or absent
      to.push_back({token, 0, 0, {spot.place ? tree_.child(*spot.place, token) : std::nullopt, 0}});
      known = to.end() - 1;
      if (known->spot.place) known->count = tree_.count(*known->spot.place);
    }
    known->count += std::uint32_t(std::popcount(same));
    known->latest = tree_.end() + SuffixTree::Position(63 - std::countl_zero(same));
    const std::uint64_t end = size - tail_begin_ < kMostTail ? std::uint64_t(1) << (size - tail_begin_) : 0;
    known->spot.tail = (same << 1) & (end - 1);
  }
  std::ranges::sort(
      to, [](const Next& a, const Next& b) { return a.count != b.count ? a.count > b.count : a.latest > b.latest; });
}

Guesses likely_paths(const Occurrences& occurrences, const PathLimits& limits, const Budget& budget, Guesses known) {
  Guesses best = std::move(known);
  if (!budget.drafts()) return best;
  for (int match = occurrences.longest(); match > 0; --match) {
    const int most = int(std::min(double(budget.nodes - 1), limits.factor * match + 1e-9));
    if (most <= best.score) break;  // no shorter match has more nodes, and none of a probability above 1
    const Budget own{most + 1, std::min(budget.depth, occurrences.depth() - match), budget.confidence};
    Guesses made = expand(occurrences, match, own, limits.least);
    if (made.score > best.score) best = std::move(made);
  }
  return best;
}

}  // namespace foretoken

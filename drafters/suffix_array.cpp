#include "drafters/suffix_array.h"

#include <algorithm>
#include <vector>

namespace foretoken {
namespace {

// One level of the recursion. A suffix is of type S if it is less than the one behind it, else of type L; an S behind
// an L is leftmost (LMS). The suffixes of one first symbol are a bucket, in which those of type L come first.
class InducedSort {
 public:
  InducedSort(std::span<const std::int32_t> symbols, int kinds, std::span<std::int32_t> order)
      : symbols_(symbols), order_(order), size_(std::int32_t(symbols.size())), ends_(std::size_t(kinds), 0) {
    smaller_.assign(symbols.size(), false);  // the last suffix is greater than the empty one behind it
    for (std::int32_t i = size_ - 2; i >= 0; --i)
      smaller_[at(i)] =
          symbols[at(i)] < symbols[at(i + 1)] || (symbols[at(i)] == symbols[at(i + 1)] && smaller_[at(i + 1)]);
    for (const std::int32_t s : symbols) ++ends_[at(s)];
    std::int32_t sum = 0;
    for (std::int32_t& end : ends_) end = sum += end;
  }

  void sort() {
    std::vector<std::int32_t> leftmost;
    for (std::int32_t i = 1; i < size_; ++i)
      if (is_leftmost(i)) leftmost.push_back(i);
    induce(leftmost);  // by their first symbols: sorts the pieces from one leftmost suffix to the next
    if (leftmost.size() > 1) {
      order_leftmost(leftmost);
      induce(leftmost);
    }
  }

 private:
  static std::size_t at(std::int32_t i) { return std::size_t(i); }
  bool is_leftmost(std::int32_t i) const { return i > 0 && smaller_[at(i)] && !smaller_[at(i - 1)]; }

  // Puts the leftmost suffixes, which are in ascending order as far as they were compared, at the ends of their
  // buckets, and from them all suffixes of type L, then all of type S.
  void induce(std::span<const std::int32_t> leftmost) {
    std::ranges::fill(order_, -1);
    std::vector<std::int32_t> place = ends_;
    for (std::size_t i = leftmost.size(); i-- > 0;) order_[at(--place[at(symbols_[at(leftmost[i])])])] = leftmost[i];
    for (std::size_t k = place.size(); k-- > 1;) place[k] = ends_[k - 1];
    place[0] = 0;
    const auto append = [&](std::int32_t i) { order_[at(place[at(symbols_[at(i)])]++)] = i; };
    append(size_ - 1);
    for (std::int32_t i = 0; i < size_; ++i)
      if (const std::int32_t before = order_[at(i)] - 1; before >= 0 && !smaller_[at(before)]) append(before);
    place = ends_;
    for (std::int32_t i = size_ - 1; i >= 0; --i)
      if (const std::int32_t before = order_[at(i)] - 1; before >= 0 && smaller_[at(before)])
        order_[at(--place[at(symbols_[at(before)])])] = before;
  }

  // Whether the pieces from leftmost suffixes to the next ones, both included, are equal.
  bool equal_pieces(std::int32_t a, std::int32_t b) const {
    for (std::int32_t k = 0;; ++k) {
      if (a + k == size_ || b + k == size_) return false;
      if (symbols_[at(a + k)] != symbols_[at(b + k)] || smaller_[at(a + k)] != smaller_[at(b + k)]) return false;
      if (k > 0 && is_leftmost(a + k)) return is_leftmost(b + k);
    }
  }

  // Sorts the leftmost suffixes: each piece between two of them becomes one symbol of a shorter sequence.
  void order_leftmost(std::vector<std::int32_t>& leftmost) {
    // Leftmost suffixes are at least two places apart, so half a position names one.
    std::vector<std::int32_t> name(symbols_.size() / 2 + 1, -1);
    std::int32_t names = 0, last = -1;
    for (const std::int32_t i : order_) {
      if (!is_leftmost(i)) continue;
      if (last >= 0 && !equal_pieces(last, i)) ++names;
      name[at(i / 2)] = names, last = i;
    }
    ++names;
    std::vector<std::int32_t> shorter;
    shorter.reserve(leftmost.size());
    for (const std::int32_t i : leftmost) shorter.push_back(name[at(i / 2)]);
    name = {};
    const std::span<std::int32_t> sorted = order_.first(shorter.size());
    if (std::size_t(names) < shorter.size())
      InducedSort(shorter, names, sorted).sort();
    else
      for (std::size_t i = 0; i < shorter.size(); ++i) sorted[at(shorter[i])] = std::int32_t(i);
    for (std::size_t i = 0; i < shorter.size(); ++i) shorter[i] = leftmost[at(sorted[i])];
    leftmost = std::move(shorter);
  }

  std::span<const std::int32_t> symbols_;
  std::span<std::int32_t> order_;
  std::int32_t size_;
  std::vector<bool> smaller_;       // [size]: of type S
  std::vector<std::int32_t> ends_;  // [kinds]: where the bucket of each symbol ends
};

}  // namespace

void sort_suffixes(std::span<const std::int32_t> symbols, int kinds, std::span<std::int32_t> order) {
  if (!symbols.empty()) InducedSort(symbols, kinds, order).sort();
}

}  // namespace foretoken

// The places of a batch, as requests take them in turn.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace foretoken {

class Places {
 public:
  explicit Places(std::size_t count) : free_(count, 0.0) {}

  // Of a request that arrives then: when a place is free for it.
  double start(double arrival) const { return std::max(arrival, free_.front()); }
  // It keeps that place until then.
  void keep(double end) {
    last_ = std::max(last_, end);
    std::size_t at = 0;
    for (std::size_t child = 1; child < free_.size(); child = 2 * at + 1) {
      if (child + 1 < free_.size() && free_[child + 1] < free_[child]) ++child;
      if (end <= free_[child]) break;
      free_[at] = free_[child], at = child;
    }
    free_[at] = end;
  }
  double last() const { return last_; }

 private:
  std::vector<double> free_;  // when they are; a heap with the earliest at its top, [places]
  double last_ = 0;
};

}  // namespace foretoken

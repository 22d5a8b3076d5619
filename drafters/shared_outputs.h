// Outputs of past requests in one suffix tree, of a bounded number of tokens: where they are too many the oldest go.
// Engines of several threads may share it. This module must not know drafters or engines.
#pragma once
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>

#include "drafters/suffix_tree.h"

namespace foretoken {

class SharedOutputs {
 public:
  SharedOutputs(int depth, std::int64_t most_tokens) : tree_(depth), most_(most_tokens) {}

  // Of an output that is longer than the bound the last tokens are kept.
  void add(std::span<const Token> output);
  // Calls f(tree), which nobody changes meanwhile.
  template <class F> void read(const F& f) const {
    const std::lock_guard lock(mutex_);
    f(tree_);
  }
  struct Books {
    std::int64_t outputs = 0, tokens = 0;  // that it has
    std::int64_t evicted = 0;              // tokens, of whole outputs or of the beginnings of long ones
    std::int64_t bytes = 0;
  };
  Books books() const;

 private:
  void evict_oldest();

  mutable std::mutex mutex_;
  SuffixTree tree_;
  std::deque<std::size_t> lengths_;  // of the outputs, the oldest first
  std::int64_t most_, tokens_ = 0, evicted_ = 0;
};

}  // namespace foretoken

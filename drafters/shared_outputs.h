// Outputs of past requests in one suffix tree, of a bounded number of tokens: where they are too many the oldest go.
// Engines of several threads may share it. This module must not know drafters or engines.
#pragma once
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "drafters/suffix_tree.h"

namespace foretoken {

class SharedOutputs {
 public:
  SharedOutputs(int depth, std::int64_t most_tokens) : tree_(depth), most_(most_tokens) {}

  // The name of a request's draws.
  struct Source {
    std::uint64_t seed = 0, stream = 0;
    auto operator<=>(const Source&) const = default;
  };
  using Sources = std::map<Source, int>;  // how many outputs are of each

  // Of an output that is longer than the bound the last tokens are kept. `source`: where it was drawn.
  void add(std::span<const Token> output, const std::optional<Source>& source = {});
  // Calls f(tree, sources), which nobody changes meanwhile. A guess that follows from an output is judged by the draws
  // that made the output where the request has the same: such a request must not be guessed for by what is here.
  template <class F> void read(const F& f) const {
    const std::lock_guard lock(mutex_);
    f(tree_, sources_);
  }
  struct Books {
    std::int64_t outputs = 0, tokens = 0;  // that it has
    std::int64_t evicted = 0;              // tokens, of whole outputs or of the beginnings of long ones
    std::int64_t bytes = 0;
  };
  Books books() const;

 private:
  void evict_oldest();

  struct Output {
    std::size_t length = 0;
    std::optional<Source> source;
  };

  mutable std::mutex mutex_;
  SuffixTree tree_;
  std::deque<Output> outputs_;  // the oldest first
  Sources sources_;
  std::int64_t most_, tokens_ = 0, evicted_ = 0;
};

}  // namespace foretoken

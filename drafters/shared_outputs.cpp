#include "drafters/shared_outputs.h"

#include <algorithm>

namespace foretoken {

void SharedOutputs::add(std::span<const Token> output, const std::optional<Source>& source) {
  const std::lock_guard lock(mutex_);
  if (std::int64_t(output.size()) > most_) {
    evicted_ += std::int64_t(output.size()) - most_;
    output = output.last(std::size_t(most_));
  }
  while (tokens_ + std::int64_t(output.size()) > most_) evict_oldest();
  if (output.empty()) return;
  const SuffixTree::Position begin = tree_.end();
  tree_.append(output);
  for (std::size_t at = 0; at < output.size(); ++at)
    tree_.insert(begin + SuffixTree::Position(at), int(std::min(output.size() - at, std::size_t(tree_.depth()))));
  if (source) ++sources_[*source];
  outputs_.push_back({output.size(), source}), tokens_ += std::int64_t(output.size());
}

void SharedOutputs::evict_oldest() {
  const auto [length, source] = outputs_.front();
  const SuffixTree::Position begin = tree_.end() - SuffixTree::Position(tokens_);
  for (std::size_t at = 0; at < length; ++at)
    tree_.remove(begin + SuffixTree::Position(at), int(std::min(length - at, std::size_t(tree_.depth()))));
  tree_.drop_before(begin + SuffixTree::Position(length));
  if (const auto of = source ? sources_.find(*source) : sources_.end(); of != sources_.end() && --of->second == 0)
    sources_.erase(of);
  outputs_.pop_front(), tokens_ -= std::int64_t(length), evicted_ += std::int64_t(length);
}

SharedOutputs::Books SharedOutputs::books() const {
  const std::lock_guard lock(mutex_);
  return {std::int64_t(outputs_.size()), tokens_, evicted_, tree_.bytes()};
}

}  // namespace foretoken

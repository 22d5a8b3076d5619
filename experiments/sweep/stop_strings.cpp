#include "experiments/sweep/stop_strings.h"

#include <algorithm>

namespace foretoken {
namespace {

class StopStrings {
 public:
  StopStrings(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops)
      : tokenizer_(std::move(tokenizer)), stops_(std::move(stops)) {
    for (const auto& s : stops_) longest_ = std::max(longest_, s.size());
  }

  std::optional<int> operator()(std::span<const Token> generated, int seen) {
    if (tokens_ != seen)
      restart(generated.first(std::size_t(std::min<std::size_t>(std::size_t(seen), generated.size()))));
    while (tokens_ < int(generated.size())) {
      push(generated[std::size_t(tokens_)]);
      for (const auto& s : stops_)
        if (tail_.find(s) != std::string::npos) return tokens_;
    }
    return std::nullopt;
  }

 private:
  // Bytes before the last longest - 1 cannot be part of a later match.
  void push(Token token) {
    if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - longest_ + 1);
    tail_ += tokenizer_->decode_inside(std::span(&token, 1), true);
    ++tokens_;
  }

  void restart(std::span<const Token> generated) {
    tail_.clear(), tokens_ = 0;
    for (const Token t : generated) push(t);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> stops_;
  std::size_t longest_ = 0;
  std::string tail_;
  int tokens_ = 0;
};

}  // namespace

StopRule stop_at(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops) {
  if (stops.empty()) return {};
  return StopStrings(std::move(tokenizer), std::move(stops));
}

}  // namespace foretoken

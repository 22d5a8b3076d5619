// The tokens of sequences as arrays that another language may keep: what is appended never moves or changes what a view
// shows, and a view keeps its memory alive. This module must not know which language.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <unordered_map>

#include "framework/decode/sequence.h"

namespace foretoken {

struct History {
  std::shared_ptr<Token[]> data;
  std::size_t size = 0, capacity = 0;

  // Becomes `tokens`: in place where they begin with what is there, else in other memory.
  void become(std::span<const Token> tokens) {
    const bool longer = tokens.size() >= size && std::ranges::equal(tokens.first(size), std::span(data.get(), size));
    if (!longer || tokens.size() > capacity) {
      capacity = 2 * tokens.size() + 64;
      data = std::shared_ptr<Token[]>(new Token[capacity]);
      size = 0;
    }
    std::ranges::copy(tokens.subspan(size), data.get() + size);
    size = tokens.size();
  }
};

class Histories {
 public:
  const History& of(const Sequence& sequence) {
    History& history = histories_[sequence.id];
    history.become(sequence.tokens);
    return history;
  }
  void forget(SequenceId id) { histories_.erase(id); }

 private:
  std::unordered_map<SequenceId, History> histories_;
};

}  // namespace foretoken

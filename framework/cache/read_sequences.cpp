#include "framework/cache/read_sequences.h"

namespace foretoken {

const Sequence& ReadSequences::translated(const Sequence& sequence) {
  Read& read = read_[sequence.id];
  Sequence& own = read.sequence;
  if (read.length == 0 || read.length > sequence.length()) {  // new, or a stop rule has cut it
    const int prompt = std::min(sequence.prompt_length, sequence.length());
    own.id = sequence.id, read.length = prompt;
    own.tokens = map_->read_prompt(std::span(sequence.tokens).first(std::size_t(prompt)));
  }
  for (; read.length < sequence.length(); ++read.length)
    map_->read(sequence.tokens[std::size_t(read.length)], own.tokens);
  return own;
}

}  // namespace foretoken

#include "framework/cache/read_sequences.h"

namespace foretoken {

const Sequence& ReadSequences::translated(const Sequence& sequence) {
  Read& read = read_[sequence.id];
  Sequence& own = read.sequence;
  const int verified = sequence.length() - sequence.speculative();
  if (read.length == 0 || read.length > verified) {  // new, or a stop rule has cut it
    const int prompt = std::min(sequence.prompt_length, verified);
    own.id = sequence.id, read.length = prompt;
    own.tokens = map_->read_prompt(std::span(sequence.tokens).first(std::size_t(prompt)));
    read.own = int(own.tokens.size());
  }
  own.tokens.resize(std::size_t(read.own));  // without what may have been taken back
  for (; read.length < verified; ++read.length) map_->read(sequence.tokens[std::size_t(read.length)], own.tokens);
  read.own = int(own.tokens.size());
  own.verified = sequence.speculates() ? read.own : -1;
  for (int at = verified; at < sequence.length(); ++at) map_->read(sequence.tokens[std::size_t(at)], own.tokens);
  return own;
}

}  // namespace foretoken

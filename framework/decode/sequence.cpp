#include "framework/decode/sequence.h"

#include <algorithm>

namespace foretoken {

const char* name_of(Finish f) {
  constexpr const char* kNames[] = {"running", "stop_token", "stop_rule", "length", "cancelled"};
  return kNames[int(f)];
}

int Sequence::append(std::span<const Token> emitted) {
  const int before = generated();
  for (const Token t : emitted) {
    tokens.push_back(t);
    if (std::find(limits.stop_tokens.begin(), limits.stop_tokens.end(), t) != limits.stop_tokens.end()) finish = Finish::stop_token;
    else if (remaining() <= 0) finish = Finish::length;
    if (!running()) break;
  }
  if (limits.stop) {
    const std::span<const Token> all(tokens.data() + prompt_length, std::size_t(generated()));
    if (const auto keep = limits.stop(all, before)) {
      tokens.resize(std::size_t(prompt_length + std::clamp(*keep, 0, generated())));
      finish = Finish::stop_rule;
    }
  }
  return std::max(0, generated() - before);
}

}  // namespace foretoken

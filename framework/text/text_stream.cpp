#include "framework/text/tokenizer.h"
#include "framework/text/utf8.h"

namespace foretoken {

std::string TextStream::push(std::span<const Token> tokens) {
  held_ += tokenizer_->decode_inside(tokens);
  std::size_t held = 0;
  std::string text = replace_broken_utf8(held_, &held);
  held_.erase(0, held_.size() - held);
  return text;
}

std::string TextStream::finish() {
  std::string text = replace_broken_utf8(held_);
  held_.clear();
  return text;
}

}  // namespace foretoken

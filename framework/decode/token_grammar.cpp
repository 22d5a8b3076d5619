#include "framework/decode/token_grammar.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken {

TokenBytes::TokenBytes(const Tokenizer& tokenizer) : by_token_(std::size_t(tokenizer.vocab()), -1) {
  for (Token t = 0; t < tokenizer.vocab(); ++t) {
    if (tokenizer.is_special(t)) continue;
    const std::string text = tokenizer.decode_inside({&t, 1});
    if (text.empty()) continue;
    items_.push_back({t, std::int32_t(bytes_.size()), std::int32_t(text.size())});
    bytes_ += text;
  }
  std::ranges::sort(items_, {}, [this](const Item& i) { return of(i); });
  for (std::size_t i = 0; i < items_.size(); ++i) {
    by_token_[std::size_t(items_[i].token)] = std::int32_t(i);
    if (i == 0) continue;
    const std::string_view a = of(items_[i - 1]), b = of(items_[i]);
    items_[i].common = std::int32_t(std::ranges::mismatch(a, b).in1 - a.begin());
  }
}

std::string_view TokenBytes::of(Token token) const {
  if (token < 0 || token >= vocab() || by_token_[std::size_t(token)] < 0) return {};
  return of(items_[std::size_t(by_token_[std::size_t(token)])]);
}

TokenGrammar::TokenGrammar(std::shared_ptr<const TokenBytes> tokens, Network network, std::vector<Token> ends)
    : tokens_(std::move(tokens)), ends_(std::move(ends)), automaton_(std::move(network)) {
  if (ends_.empty())
    throw Error(
        "a response format needs a token that ends the output; leave out 'ignore_eos', or use a model whose files name "
        "such a token");
}

Constraint::State TokenGrammar::start() const { return automaton_.start(); }

Constraint::State TokenGrammar::after(State state, Token token) const {
  if (state < 0) return kBroken;
  const std::scoped_lock lock(mutex_);
  if (std::ranges::find(ends_, token) != ends_.end()) return automaton_.accepts(state) ? kEnded : kBroken;
  const std::string_view bytes = tokens_->of(token);
  if (bytes.empty()) return kBroken;
  for (const char b : bytes) {
    state = automaton_.next(state, std::uint8_t(b));
    if (state == Automaton::kDead) return kBroken;
  }
  return state;
}

bool TokenGrammar::allowed(State state, std::span<std::uint32_t> allowed) const {
  std::ranges::fill(allowed, 0);
  if (state < 0) return false;
  const std::scoped_lock lock(mutex_);
  const Mask* mask = mask_of(state);
  if (!mask) return false;
  std::copy_n(mask->begin(), std::min(mask->size(), allowed.size()), allowed.begin());
  return std::ranges::any_of(*mask, [](std::uint32_t word) { return word != 0; });
}

std::string TokenGrammar::fault() const {
  const std::scoped_lock lock(mutex_);
  if (!automaton_.full()) return {};
  return "its response format has led to more than " + std::to_string(Automaton::kMostStates) +
         " states, or to too many ways at once; ask again, or for a form with less nesting and fewer counts";
}

bool TokenGrammar::crowded() const {
  const std::scoped_lock lock(mutex_);
  return automaton_.full() || automaton_.states() > Automaton::kMostStates / 4;
}

// Reads all tokens from the state. The states on the way to a token serve the next one as far as their bytes are equal.
const TokenGrammar::Mask* TokenGrammar::mask_of(State state) const {
  const auto known = masks_.find(state);
  if (known != masks_.end()) return &known->second;
  const std::uint64_t refused = automaton_.refused();
  Mask mask(std::size_t(tokens_->vocab() + 31) / 32, 0);
  const auto allow = [&](Token t) { mask[std::size_t(t) / 32] |= std::uint32_t(1) << (t % 32); };
  std::vector<State> path{state};  // after each byte of the last token, as far as the language goes on
  std::int32_t dead_at = -1;       // bytes of the last token that the language allows, where these are not all
  for (const TokenBytes::Item& i : tokens_->items()) {
    if (dead_at >= 0 && i.common > dead_at) continue;
    if (automaton_.refused() != refused) return nullptr;
    dead_at = -1;
    path.resize(std::size_t(std::min(i.common, std::int32_t(path.size()) - 1)) + 1);
    const std::string_view bytes = tokens_->of(i);
    while (std::int32_t(path.size()) <= i.length) {
      const State next = automaton_.next(path.back(), std::uint8_t(bytes[path.size() - 1]));
      if (next == Automaton::kDead) break;
      path.push_back(next);
    }
    if (std::int32_t(path.size()) <= i.length)
      dead_at = std::int32_t(path.size()) - 1;
    else if (std::ranges::find(ends_, i.token) == ends_.end())  // one that ends outputs is no text
      allow(i.token);
  }
  if (automaton_.refused() != refused) return nullptr;
  if (automaton_.accepts(state))
    for (const Token t : ends_)
      if (t >= 0 && t < tokens_->vocab()) allow(t);
  if ((masks_.size() + 1) * mask.size() * sizeof(std::uint32_t) > kMaskBytes) masks_.clear();
  return &masks_.emplace(state, std::move(mask)).first->second;
}

}  // namespace foretoken

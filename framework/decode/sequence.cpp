#include "framework/decode/sequence.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/error.h"

namespace foretoken {

const char* name_of(Finish f) {
  constexpr const char* kNames[] = {"running", "stop_token", "stop_rule", "length", "cancelled", "failed"};
  return kNames[int(f)];
}

bool is_temperature(double temperature) {
  return temperature == 0 ||
         (temperature > 0 && std::isfinite(1 / float(temperature)) && std::isfinite(float(temperature)));
}

void expect_sampling(const Sampling& s, int vocab) {
  const auto refuse = [](const std::string& what) { throw Error("sampling option " + what); };
  if (!(s.temperature >= 0) || !std::isfinite(s.temperature)) refuse("'temperature' must be a number >= 0");
  if (!is_temperature(s.temperature)) refuse("'temperature' is too small to divide by; use 0 for greedy decoding");
  if (s.top_k < 0) refuse("'top_k' must be 0 (off) or positive");
  if (!(s.top_p > 0 && s.top_p <= 1)) refuse("'top_p' must lie in (0, 1]");
  if (!(s.min_p >= 0 && s.min_p < 1)) refuse("'min_p' must lie in [0, 1)");
  if (!(s.repetition_penalty >= 0.01f && s.repetition_penalty <= 100))
    refuse("'repetition_penalty' must lie in [0.01, 100]");
  for (const float penalty : {s.frequency_penalty, s.presence_penalty})
    if (!(penalty >= -100 && penalty <= 100))
      refuse("'frequency_penalty' and 'presence_penalty' must lie in [-100, 100]");
  if (s.warped_logprobs && !s.logprobs)
    refuse("'warped_logprobs' has no effect without 'logprobs'; set both or neither");
  for (const TokenBias& b : s.logit_bias) {
    if (b.token < 0 || b.token >= vocab)
      refuse("'logit_bias' names token " + std::to_string(b.token) + ", but the vocabulary has " +
             std::to_string(vocab) + " tokens");
    if (!(b.bias >= -100 && b.bias <= 100))
      refuse("'logit_bias' of token " + std::to_string(b.token) + " must lie in [-100, 100]; -100 forbids a token");
  }
  const Tally tally({}, s.logit_bias, {});
  if (std::ranges::count_if(tally.token_counts(), [](const TokenCount& c) { return std::isinf(c.bias); }) == vocab)
    refuse("'logit_bias' forbids all " + std::to_string(vocab) +
           " tokens of the vocabulary, so that none could follow; leave at least one without -100");
  if (s.constraint && !s.constraint->allowed(s.constraint->start(), {}))
    refuse("'constraint' allows no token of the vocabulary at the beginning, so that none could follow");
}

namespace {

std::string fault_of(const Constraint& constraint, std::string otherwise) {
  std::string fault = constraint.fault();
  return fault.empty() ? std::move(otherwise) : fault;
}

}  // namespace

int Sequence::append(std::span<const Token> emitted) {
  const int before = generated();
  for (const Token t : emitted) {
    tokens.push_back(t);
    tally.add(t);
    if (tally.broken())
      fail(fault_of(*tally.constraint(), "token " + std::to_string(t) +
                                             ", which its constraint does not allow, was accepted; use a verifier that "
                                             "is not lossy, or biases that leave allowed tokens"));
    else if (std::find(limits.stop_tokens.begin(), limits.stop_tokens.end(), t) != limits.stop_tokens.end())
      finish = Finish::stop_token;
    else if (remaining() <= 0)
      finish = Finish::length;
    else if (tally.constraint() && !tally.constraint()->allowed(tally.state(), {}))
      fail(fault_of(*tally.constraint(), "no token of the vocabulary continues its output as its constraint asks"));
    if (!running()) break;
  }
  if (limits.stop) {
    const std::span<const Token> all(tokens.data() + prompt_length, std::size_t(generated()));
    const auto keep = limits.stop(all, before);
    // What it cuts off cannot fail.
    if (keep && (finish != Finish::failed || *keep < generated())) {
      tokens.resize(std::size_t(prompt_length + std::clamp(*keep, 0, generated())));
      finish = Finish::stop_rule, failure.clear();
    }
  }
  return std::max(0, generated() - before);
}

}  // namespace foretoken

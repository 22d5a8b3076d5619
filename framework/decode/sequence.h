// A sequence: its tokens, its sampling options, and when to stop. It has no blocks and no batch slot. This module must
// not know drafters, verifiers, or where keys are stored.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/decode/tally.h"
#include "kernels/distribution.h"

namespace foretoken {

using SequenceId = std::uint64_t;

struct Sampling {
  float temperature = 0;                // >= 0; 0 is greedy
  int top_k = 0;                        // 0: off
  float top_p = 1;                      // (0, 1]
  float min_p = 0;                      // [0, 1)
  float repetition_penalty = 1;         // > 0, of tokens of the prompt or the output; 1: off
  float frequency_penalty = 0;          // for each time that the output has the token
  float presence_penalty = 0;           // once, if the output has the token
  std::vector<TokenBias> logit_bias{};  // within [-100, 100]; -100 forbids a token at every temperature
  std::uint64_t seed = 1;
  bool logprobs = false;                           // of emitted tokens
  bool warped_logprobs = false;                    // under the warped distribution instead of the raw one
  std::shared_ptr<const Constraint> constraint{};  // which tokens may come next; null: all

  Penalties penalties() const { return {repetition_penalty, frequency_penalty, presence_penalty}; }
  Warp warp() const { return {temperature, top_k, top_p, min_p, logprobs && !warped_logprobs}; }
};

// 0, or what logits can be divided by: its reciprocal is a finite float.
bool is_temperature(double temperature);

// An option out of its range, or a bias of a token outside a vocabulary of `vocab` tokens, is an Error.
void expect_sampling(const Sampling& sampling, int vocab);

// Given the generated tokens, of which it saw the first `seen` before: how many of them to keep if the sequence must
// stop there.
using StopRule = std::function<std::optional<int>(std::span<const Token> generated, int seen)>;

struct Limits {
  int max_new_tokens = 64;
  std::vector<Token> stop_tokens;  // the first of these ends the sequence and stays in it
  StopRule stop;                   // stop strings and other rules of a user
};

enum class Finish : std::uint8_t { running, stop_token, stop_rule, length, cancelled, failed };
const char* name_of(Finish f);  // "running", "stop_token", ...

struct Sequence {
  // Names the sequence to components, which keep what they know of it by the whole id until it is forgotten
  // (Drafter::forget, LengthPolicy::forget). An engine counts requests from 1 and gives no id twice, but nothing may
  // rely on that: ids need not be dense or small, and after forget() one may come again for another sequence. The
  // conformance kit does both. Ids of two engines have nothing to do with each other.
  SequenceId id = 0;
  std::vector<Token> tokens;  // prompt, then what was generated
  int prompt_length = 0;
  Limits limits;
  Sampling sampling;
  std::uint64_t stream = 0;  // names the draws; given with the request, independent of the batch slot
  Finish finish = Finish::running;
  std::vector<float> logprobs;  // one per generated token, if requested
  Tally tally{};                // of its tokens, for penalties, biases and its constraint
  std::string failure{};        // why it failed; empty where it did not
  std::string category{};       // of the request, as its workload names it ("math"); empty: none
  // Not -1 for a copy of a sequence to which a drafter has appended a path of its draft, to draft below it: so many
  // tokens are the sequence's own, those behind may be taken back. Caches keep no row of those for good, but find them
  // again while the path grows, and nothing is learned from them.
  int verified = -1;

  int length() const { return int(tokens.size()); }
  Token last() const { return tokens.back(); }
  int generated() const { return length() - prompt_length; }
  int remaining() const { return limits.max_new_tokens - generated(); }
  bool running() const { return finish == Finish::running; }
  bool speculates() const { return verified >= 0; }
  int speculative() const { return speculates() ? length() - verified : 0; }  // tokens that may be taken back
  // Appends the tokens that a round emitted, and cuts at a stop token, a stop rule or the length limit. Returns how
  // many of the new tokens were kept. Fails where the constraint does not allow one, or allows none behind them.
  int append(std::span<const Token> emitted);
  void fail(std::string why) { finish = Finish::failed, failure = std::move(why); }
};

}  // namespace foretoken

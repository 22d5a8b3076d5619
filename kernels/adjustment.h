// Adjusts a row of logits before its warp: biases of tokens, and penalties for tokens that occurred before. A row lists
// the tokens that it adjusts, so the whole vocabulary need not be read. Host and device, same bits everywhere. This
// module must not know sequences or trees: earlier tokens come as counts, those of the row's own path as a list.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/distribution.h"
#include "kernels/host_device.h"

namespace foretoken {

// Penalties for tokens that occurred before. 1, 0, 0: none.
struct Penalties {
  float repetition = 1;  // > 0: divides a positive logit and multiplies another (Keskar et al. 2019, arXiv 1909.05858,
                         // as in Transformers)
  float frequency = 0;   // for each time that it was generated (OpenAI)
  float presence = 0;    // once, if it was generated (OpenAI)

  FORETOKEN_HD bool counts() const { return repetition != 1 || frequency != 0 || presence != 0; }
  bool operator==(const Penalties&) const = default;
};

// A token whose logit is adjusted, and how often it occurred.
struct TokenCount {
  Token token = -1;
  std::int32_t times = 0;     // among the generated tokens
  std::int32_t anywhere = 0;  // 1: in the prompt or among the generated tokens
  float bias = 0;             // added first; minus infinity forbids the token
};

// The adjustments of one row. Pointers into the backend's memory.
struct Adjustment {
  const TokenCount* token_counts = nullptr;  // [count], ascending by token, each once
  // [length] generated tokens that `token_counts` does not include yet, in any order; -1 is none.
  const Token* path = nullptr;
  std::int32_t count = 0, length = 0;
  Penalties penalties;
};

// Bias, repetition, frequency and presence, in this order.
FORETOKEN_HD inline float adjusted(float logit, const TokenCount& s, const Penalties& by) {
  float l = add(logit, s.bias);
  if (s.anywhere != 0 && by.repetition != 1) l = l > 0 ? l / by.repetition : mul(l, by.repetition);
  l = add(l, -mul(by.frequency, float(s.times)));
  return s.times > 0 ? add(l, -by.presence) : l;
}

// The logit of a token that bit t % 32 of allowed[t / 32] allows or not.
FORETOKEN_HD inline float masked(float logit, const std::uint32_t* allowed, Token t) {
  return (allowed[t >> 5] >> (t & 31) & 1) != 0 ? logit : -INFINITY;
}

// Item `k` of count + length: adjusts the logit of one token, or of none where another item has the same token of the
// path. The items of a row are independent.
FORETOKEN_HD inline void adjust_item(float* logits, const Adjustment& a, int k) {
  TokenCount s;
  if (k < a.count) {
    s = a.token_counts[k];
  } else {
    s.token = a.path[k - a.count];
    if (s.token < 0) return;
    for (int i = 0; i < k - a.count; ++i)
      if (a.path[i] == s.token) return;
    int low = 0, high = a.count;  // the first entry that is not below the token
    while (low < high) {
      const int middle = (low + high) / 2;
      if (a.token_counts[middle].token < s.token)
        low = middle + 1;
      else
        high = middle;
    }
    if (low < a.count && a.token_counts[low].token == s.token) return;
  }
  for (int i = 0; i < a.length; ++i)
    if (a.path[i] == s.token) ++s.times, s.anywhere = 1;
  logits[s.token] = adjusted(logits[s.token], s, a.penalties);
}

}  // namespace foretoken

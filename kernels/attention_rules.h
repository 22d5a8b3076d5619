// What attention computes besides its sizes: how scores become weights, and how queries and keys are rotated. This
// module must not know slots or pages.
#pragma once
#include <cmath>
#include <utility>

#include "kernels/tensor.h"

namespace foretoken {

// The weights of a row are the softmax of its scores, f(scale * q . k), and of the sink of its head.
struct AttentionRules {
  float scale = 1;
  float softcap = 0;  // f(s) = softcap * tanh(s / softcap) (Gemma 2: arXiv 2408.00118); 0: f(s) = s

  // f32 [query heads], dense: one more score of each head, which has no value, so that the weights of the others sum to
  // less than 1 (gpt-oss: arXiv 2508.10925); absent: there is none.
  Tensor sinks;

  AttentionRules(float scale, float softcap = 0, Tensor sinks = {})
      : scale(scale), softcap(softcap), sinks(std::move(sinks)) {}  // implicit: often the scale is all there is
};

// f of a cap; 0: none.
inline double capped(double score, double cap) { return cap > 0 ? cap * std::tanh(score / cap) : score; }

// The rotary embedding of the first 2 n numbers of every head, as pairs (i, i + n); those behind them stay.
struct RotaryRules {
  Tensor frequencies;       // f32 [n], n <= head_size / 2
  float factor = 1;         // of cosines and sines (LongRoPE: arXiv 2402.13753)
  bool neighbours = false;  // pairs are (2 i, 2 i + 1) (DeepSeek)

  RotaryRules() = default;
  RotaryRules(Tensor frequencies, float factor = 1)
      : frequencies(std::move(frequencies)), factor(factor) {}  // likewise
};

// What the layers of a model ask of attention: what a device may lack.
struct AttentionNeeds {
  int head_size = 0;
  bool softcap = false, sinks = false;
  bool partial_rotation = false, rotation_factor = false;  // of RotaryRules
  bool latent = false;                                     // values are parts of keys (KvLayer::latent)
};

}  // namespace foretoken

// Has a model predict every token of a text, beside a reference model where there is one, and makes averages of it; and
// compares their greedy outputs. This module must not know how models are loaded or how figures are shown.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "experiments/quality/reading.h"
#include "experiments/quality/text.h"
#include "experiments/report/statistics.h"

namespace foretoken {

// What one row of logits says of the token that follows, and how it differs from a reference's row. Computed in double:
// sums of 128k exponentials in f32 are wrong in the fourth digit of a divergence. All of it is NaN where a logit is not
// finite.
struct TokenScore {
  double loss = 0;  // -log p(token) of the model, nats
  // Against the reference's distribution r; 0 without a reference.
  double reference_loss = 0;
  double divergence = 0;  // KL(r || p) = sum of r log(r / p), nats
  double overlap = 0;   // sum of min(r, p): how often speculative sampling accepts a token drawn from one for the other
  bool agrees = false;  // the most probable token is the same, the lowest of equals
};

TokenScore score_of(std::span<const float> logits, Token token);
TokenScore score_of(std::span<const float> logits, std::span<const float> reference, Token token);

struct Text {
  std::vector<Document> documents;
  std::vector<Window> windows;
  long predictions() const;
};

// A reference with another vocabulary, or a token outside it, is an Error. `reference` may be null.
void expect_vocabulary(const Text& text, const ModelInfo& model, const ModelInfo* reference);

// One score for each predicted token, window after window. `reference` may be null. `between` is called with the share
// that is done after every forward; what it throws ends the work. Logits that are not finite are an
// Error that names the model.
std::vector<TokenScore> predict(const Text& text, Reading& model, Reading* reference,
                                const std::function<void(double done)>& between = {});

// Averages over tokens. The units of the intervals are documents, or windows where there are fewer than ten documents:
// neighbouring tokens are not independent. Bounds of a mean are unknown where all units have the same.
struct PredictionFigures {
  long tokens = 0;
  std::string unit;  // "document" or "window"
  int units = 0;
  Interval loss;        // mean -log p, nats
  Interval perplexity;  // exp(loss)
  // The rest is unknown without a reference.
  Interval reference_loss, reference_perplexity;
  Interval excess;      // mean of loss - reference_loss, token by token
  Interval divergence;  // mean KL(reference || model), nats
  double divergence_median, divergence_99, divergence_most;
  Interval agreement;  // share of tokens where the most probable token is the reference's
  Interval overlap;    // mean sum of min(p, r)
};
PredictionFigures figures_of(const Text& text, std::span<const TokenScore> scores, bool compared);

// mean_interval(), but for equal units: resamples of them are all the same, which would say that the mean is certain.
// They do not say how others vary, so the bounds are unknown.
Interval varying_mean(std::span<const Term> units, double least, double most);

using Outputs = std::vector<std::vector<Token>>;  // of the prompts, in their order

struct OutputFigures {
  int prompts = 0;
  Interval equal;         // share of prompts with the reference's whole output
  Interval prefix;        // mean number of tokens before the first difference; the whole output where there is none
  Interval prefix_share;  // the same as a share of the reference's tokens, a ratio of totals
};

// Both have an output for each prompt. The units of the intervals are prompts; bounds are unknown where all are equal.
OutputFigures figures_of(const Outputs& model, const Outputs& reference);

}  // namespace foretoken

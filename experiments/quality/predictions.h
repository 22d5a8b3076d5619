// Has a model predict every token of a text, beside a reference model where there is one, and makes averages of it.
// This module must not know how models are loaded or how figures are shown.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "experiments/quality/reading.h"
#include "experiments/quality/row_scores.h"
#include "experiments/quality/windows.h"
#include "experiments/report/statistics.h"

namespace foretoken {

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

}  // namespace foretoken

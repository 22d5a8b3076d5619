// Reads texts and cuts their tokens into windows, has a model predict every token, beside a reference model where there
// is one, and makes averages of it; and compares greedy outputs. This module must not know how models are loaded or how
// figures are shown.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/report/statistics.h"
#include "framework/cache/cached_model.h"
#include "framework/decode/sequence.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

struct Document {
  std::vector<Token> tokens;
  int opening = 0;  // tokens before the text: a beginning of sequence, where the tokenizer adds one
};

// The encoded text, with what the tokenizer puts before it.
Document document_of(const Tokenizer& tokenizer, const std::string& text);

// A file of text is one document, JSON lines (.jsonl) hold one in each line. `option`: by which the user named the
// file, for messages. A file that is empty or cannot be read is an Error.
std::vector<Document> documents_of(const std::string& file, const std::string& option, const Tokenizer& tokenizer);

// A model is given the document's opening, then its tokens [begin, end), and predicts [first, end): each from all
// tokens before it in the window.
struct Window {
  int document = 0;
  int begin = 0, first = 0, end = 0;  // indices into Document::tokens
  int predictions() const { return end - first; }
  std::vector<Token> tokens(std::span<const Document> documents) const;
};

struct WindowOptions {
  int window = 512;    // tokens of a window at most, its opening included
  int stride = 256;    // tokens from the beginning of one window to that of the next
  long predicted = 0;  // tokens of the whole text that are predicted at most; 0: all
};

// Windows begin every `stride` tokens of a document until its end, and each predicts the tokens that no window before
// it predicts. So every token is predicted once, but for the opening and, where there is none, the document's first
// token. Tokens behind the first window have at least window - stride - opening tokens before them. A stride that
// leaves none, or a text without a token to predict, is an Error.
std::vector<Window> windows_of(std::span<const Document> documents, const WindowOptions& options);

// The logits of a model along a window of tokens, some rows at a time, computed as the engine computes them: through a
// paged cache. Of a thinned cache the pages are chosen anew for each token, which is then read alone, as in decoding,
// and what it writes is computed from those pages: a target that never had more.
class Reading {
 public:
  // `backend` must outlive it. `window`: the most tokens of a window. `chosen`: of a thinned cache; empty: it is whole.
  Reading(Backend& backend, std::shared_ptr<Model> model, int window, PageChoice chosen = {});

  const ModelInfo& info() const { return cached_.info(); }
  // The tokens of the next window.
  void begin(std::span<const Token> tokens);
  // On the host: f32 [n, vocab], the logits after each of the window's tokens [at, at + n), of which the last call
  // ended at `at` or before. Their memory is not reused while the Tensor lives.
  Tensor logits(int at, int n);

 private:
  Tensor next(int at);
  Tensor logits_of(CachedModel& model, int at, int n);

  Backend& backend_;
  PagePool pool_;
  CachedModel cached_;
  std::optional<CachedModel> thinned_;  // on pages of `cached_`
  Tensor token_;                        // i32 [1]: the last one that it read
  int read_ = 0;                        // tokens that it read
  std::vector<Token> tokens_;
  Sequence sequence_;
};

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

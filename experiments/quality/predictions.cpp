#include "experiments/quality/predictions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "experiments/quality/varying_mean.h"
#include "framework/model/in_parallel.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

std::span<const float> row(const Tensor& logits, std::int64_t i) {
  return {logits.row<float>(i), std::size_t(logits.dim(1))};
}

// Of the n tokens behind `tokens[at]`.
void score_rows(const Tensor& model, const Tensor& reference, std::span<const Token> next, std::span<TokenScore> to) {
  constexpr std::int64_t kWorkOfALogit = 40;  // in elements that are copied
  in_parallel(std::int64_t(next.size()), kWorkOfALogit * model.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Token token = next[std::size_t(i)];
      to[std::size_t(i)] =
          reference ? score_of(row(model, i), row(reference, i), token) : score_of(row(model, i), token);
    }
  });
}

void expect_finite(std::span<const TokenScore> scores, const Window& w, const Reading& model,
                   const Reading* reference) {
  if (std::ranges::none_of(scores, [](const TokenScore& s) { return std::isnan(s.loss); })) return;
  throw Error("logits of " + model.info().name + (reference ? " or " + reference->info().name : "") + " in document " +
              std::to_string(w.document + 1) +
              " are not finite: the weights are damaged, or numbers are too large for their type; "
              "try --device reference, or another type of weights");
}

// Totals over the scores of one unit: `top` of a score among `bottom`.
template <class Top>
std::vector<Term> totals(const Text& text, std::span<const TokenScore> scores, bool documents, const Top& top) {
  std::vector<Term> units;
  std::size_t at = 0;
  int unit = -1;
  for (std::size_t w = 0; w < text.windows.size(); ++w) {
    const int own = documents ? text.windows[w].document : int(w);
    if (own != unit) units.emplace_back(), unit = own;
    for (int i = 0; i < text.windows[w].predictions(); ++i, ++at) units.back() += {top(scores[at]), 1, 0, 0};
  }
  return units;
}

Interval exponential(const Interval& i) { return {std::exp(i.value), std::exp(i.low), std::exp(i.high)}; }

}  // namespace

void expect_vocabulary(const Text& text, const ModelInfo& model, const ModelInfo* reference) {
  if (reference && (model.vocabulary != reference->vocabulary || model.vocab != reference->vocab))
    throw Error(
        "the models " + model.name + " (" + std::to_string(model.vocab) + " tokens) and " + reference->name + " (" +
        std::to_string(reference->vocab) +
        " tokens) have different vocabularies, so their distributions cannot be compared; name a reference with "
        "the model's own vocabulary");
  for (const Document& d : text.documents)
    for (const Token t : d.tokens)
      if (t >= model.vocab)
        throw Error("the tokenizer has the token " + std::to_string(t) + ", outside the vocabulary of " + model.name +
                    " (" + std::to_string(model.vocab) + " tokens); name a model with its own tokenizer");
}

long Text::predictions() const {
  long all = 0;
  for (const Window& w : windows) all += w.predictions();
  return all;
}

std::vector<TokenScore> predict(const Text& text, Reading& model, Reading* reference,
                                const std::function<void(double)>& between) {
  expect_vocabulary(text, model.info(), reference ? &reference->info() : nullptr);
  const int most = rows_at_once(model.info().vocab);
  const double all = double(text.predictions());
  std::vector<TokenScore> scores(std::size_t(text.predictions()));
  std::size_t done = 0;
  for (const Window& w : text.windows) {
    const std::vector<Token> tokens = w.tokens(text.documents);
    model.begin(tokens);
    if (reference) reference->begin(tokens);
    const int size = int(tokens.size()), first = size - w.predictions();
    for (int to = first; to < size; to += most) {
      const int n = std::min(most, size - to);
      const std::span<TokenScore> part(scores.data() + done, std::size_t(n));
      const Tensor logits = model.logits(to - 1, n), others = reference ? reference->logits(to - 1, n) : Tensor();
      score_rows(logits, others, std::span(tokens).subspan(std::size_t(to), std::size_t(n)), part);
      expect_finite(part, w, model, reference);
      done += part.size();
      if (between) between(double(done) / all);
    }
  }
  return scores;
}

PredictionFigures figures_of(const Text& text, std::span<const TokenScore> scores, bool compared) {
  constexpr std::size_t kFewDocuments = 10;
  std::set<int> read;
  for (const Window& w : text.windows) read.insert(w.document);
  const bool documents = read.size() >= kFewDocuments;
  const auto of = [&](const auto& top) { return totals(text, scores, documents, top); };
  PredictionFigures f;
  f.tokens = long(scores.size());
  f.unit = documents ? "document" : "window", f.units = int(documents ? read.size() : text.windows.size());
  f.loss = varying_mean(of([](const TokenScore& s) { return s.loss; }), 0, kNoLimit);
  f.perplexity = exponential(f.loss);
  f.reference_loss = f.reference_perplexity = f.excess = f.divergence = f.agreement = f.overlap = Interval::unknown();
  std::vector<double> divergences;
  if (compared) {
    f.reference_loss = varying_mean(of([](const TokenScore& s) { return s.reference_loss; }), 0, kNoLimit);
    f.reference_perplexity = exponential(f.reference_loss);
    f.excess = varying_mean(of([](const TokenScore& s) { return s.loss - s.reference_loss; }), -kNoLimit, kNoLimit);
    f.divergence = varying_mean(of([](const TokenScore& s) { return s.divergence; }), 0, kNoLimit);
    f.agreement = share_interval(of([](const TokenScore& s) { return s.agrees ? 1.0 : 0.0; }));
    f.overlap = varying_mean(of([](const TokenScore& s) { return s.overlap; }), 0, 1);
    for (const TokenScore& s : scores) divergences.push_back(s.divergence);
    std::ranges::sort(divergences);
  }
  f.divergence_median = quantile(divergences, 0.5), f.divergence_99 = quantile(divergences, 0.99);
  f.divergence_most = quantile(divergences, 1);
  return f;
}

}  // namespace foretoken

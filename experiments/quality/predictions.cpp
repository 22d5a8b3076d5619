#include "experiments/quality/predictions.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "experiments/report/statistics.h"
#include "experiments/sweep/workload.h"
#include "framework/model/in_parallel.h"
#include "framework/text/regular_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr int kPageRows = 16;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// A sum of many terms, in blocks: alone, 128k of them lose 1e-12 of it, which is much of a small divergence.
class BlockSum {
 public:
  void add(double x) {
    block_ += x;
    if (++terms_ % 256 != 0) return;
    sum_ += block_;
    block_ = 0;
  }
  double value() const { return sum_ + block_; }

 private:
  double sum_ = 0, block_ = 0;
  int terms_ = 0;
};

// log p(x) = logits[x] - shift - log_sum
struct Normalizer {
  double shift = 0, log_sum = 0;
  std::size_t top = 0;  // the most probable token

  explicit Normalizer(std::span<const float> logits) {
    const auto greatest = std::ranges::max_element(logits);
    top = std::size_t(greatest - logits.begin());
    shift = double(*greatest);
    BlockSum sum;
    for (const float l : logits) sum.add(std::exp(double(l) - shift));  // NaN where a logit is NaN or infinite
    log_sum = std::log(sum.value());
  }
  double log_probability(float logit) const { return double(logit) - shift - log_sum; }
};

// exp of minus infinity is 0 and finite, so a sum of exponentials does not show such a logit.
bool finite(std::span<const float> logits) {
  return std::ranges::all_of(logits, [](float l) { return std::isfinite(l); });
}

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
    if (own != unit) units.emplace_back();
    unit = own;
    for (int i = 0; i < text.windows[w].predictions(); ++i, ++at) units.back() += {top(scores[at]), 1, 0, 0};
  }
  return units;
}

Interval exponential(const Interval& i) { return {std::exp(i.value), std::exp(i.low), std::exp(i.high)}; }

}  // namespace

Document document_of(const Tokenizer& tokenizer, const std::string& text) {
  Document d{tokenizer.encode(text), 0};
  const auto body = std::ranges::search(d.tokens, tokenizer.encode(text, false));
  d.opening = int(body.begin() - d.tokens.begin());
  return d;
}

std::vector<Token> Window::tokens(std::span<const Document> documents) const {
  const Document& d = documents[std::size_t(document)];
  std::vector<Token> all(d.tokens.begin(), d.tokens.begin() + d.opening);
  all.insert(all.end(), d.tokens.begin() + begin, d.tokens.begin() + end);
  return all;
}

std::vector<Window> windows_of(std::span<const Document> documents, const WindowOptions& o) {
  std::vector<Window> all;
  long left = o.predicted > 0 ? o.predicted : std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < documents.size() && left > 0; ++i) {
    const Document& d = documents[i];
    if (o.stride < 1 || o.stride + d.opening >= o.window)
      throw Error("windows of " + std::to_string(o.window) + " tokens cannot begin every " + std::to_string(o.stride) +
                  " tokens, since a token of a later window would have nothing before it; lower --stride or raise "
                  "--window");
    int predicted = std::max(d.opening, 1);  // the first token that no window predicts yet
    const int end = int(std::min<long>(long(d.tokens.size()), predicted + left));
    for (int begin = d.opening; predicted < end; begin += o.stride) {
      const int last = std::min(begin + o.window - d.opening, end);
      all.push_back({.document = int(i), .begin = begin, .first = predicted, .end = last});
      left -= last - predicted;
      predicted = last;
    }
  }
  if (all.empty()) throw Error("the text is too short: it has no token that follows another; give a longer one");
  return all;
}

std::vector<Document> documents_of(const std::string& file, const std::string& option, const Tokenizer& tokenizer) {
  const std::filesystem::path path = locate(file);
  std::vector<Document> all;
  if (path.extension() == ".jsonl") {
    for (const Prompt& p : read_prompts(path)) all.push_back(document_of(tokenizer, p.text));
  } else {
    const std::string text = read_bytes(path, "the text '" + path.string() + "'", "name a file of text with " + option);
    if (text.empty()) throw Error("the text '" + path.string() + "' is empty; name a file of text with " + option);
    all.push_back(document_of(tokenizer, text));
  }
  return all;
}

Reading::Reading(Backend& backend, std::shared_ptr<Model> model, int window, PageChoice chosen)
    : backend_(backend),
      pool_(backend, model->info().kv.page_bytes(kPageRows), (window + kPageRows - 1) / kPageRows),
      cached_(backend, model, pool_, false),
      token_(Tensor::host({1}, DType::i32)) {
  if (chosen) thinned_.emplace(backend, std::move(model), cached_.cache(), std::move(chosen));
}

void Reading::begin(std::span<const Token> tokens) {
  if (thinned_) thinned_->forget(sequence_);
  cached_.forget(sequence_);
  tokens_.assign(tokens.begin(), tokens.end());
  read_ = 0;
}

// The token `at` is the root of a tree, and those behind it are a chain below: nodes have logits.
Tensor Reading::logits_of(CachedModel& model, int at, int n) {
  DraftTree tree = DraftTree::rooted(backend_, tokens_[std::size_t(at)], n - 1);
  for (int i = 1; i < n; ++i) tree.guess(i - 1, tokens_[std::size_t(at + i)]);
  const int chain = int(model.unseen(sequence_).size()) - 1;
  (void)model.reserve(sequence_, chain + n);  // the pool has pages for a whole window
  const Segment segment{&sequence_, chain, &tree, 0};
  const Tensor logits = model.run({&segment, 1}).logits;
  if (backend_.device() == Device{}) return logits;
  const Tensor host = Tensor::host(logits.shape(), DType::f32);
  backend_.copy(logits, host);
  return host;
}

// Of a thinned cache: reads one more token. The view writes its row to the page that the cache has reserved for it, and
// the cache takes it as a row of its own.
Tensor Reading::next(int at) {
  sequence_.tokens.assign(tokens_.begin(), tokens_.begin() + at + 1);
  (void)cached_.unseen(sequence_);
  (void)cached_.reserve(sequence_, 1);
  const Tensor logits = logits_of(*thinned_, at, 1);
  token_.data<Token>()[0] = tokens_[std::size_t(at)];
  (void)cached_.cache().fed(sequence_.id).append(-1, {token_, {}}, 0);
  return logits;
}

Tensor Reading::logits(int at, int n) {
  if (thinned_) {
    const Tensor all = Tensor::host({n, info().vocab}, DType::f32);
    for (; read_ < at + n; ++read_) {
      const Tensor logits = next(read_);
      if (read_ >= at) std::ranges::copy(logits.values<float>(), all.row<float>(read_ - at));
    }
    return all;
  }
  sequence_.tokens.assign(tokens_.begin(), tokens_.begin() + at + 1);
  return logits_of(cached_, at, n);
}

TokenScore score_of(std::span<const float> logits, Token token) {
  if (!finite(logits)) return {.loss = kUnknown};
  return {.loss = -Normalizer(logits).log_probability(logits[std::size_t(token)])};
}

TokenScore score_of(std::span<const float> logits, std::span<const float> reference, Token token) {
  if (!finite(logits) || !finite(reference)) return {kUnknown, kUnknown, kUnknown, kUnknown, false};
  const Normalizer model(logits), other(reference);
  TokenScore s{-model.log_probability(logits[std::size_t(token)]),
               -other.log_probability(reference[std::size_t(token)]), 0, 0, model.top == other.top};
  BlockSum divergence, overlap;
  for (std::size_t x = 0; x < logits.size(); ++x) {
    const double log_p = model.log_probability(logits[x]), log_r = other.log_probability(reference[x]),
                 p = std::exp(log_p), r = std::exp(log_r);
    divergence.add(r * (log_r - log_p));
    overlap.add(std::min(p, r));
  }
  s.divergence = std::max(divergence.value(), 0.0);  // less than 0 by rounding only
  s.overlap = overlap.value();
  return s;
}

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
  constexpr std::int64_t kBytes = 64 << 20;  // of rows of logits that are held at once
  const int most = int(std::clamp<std::int64_t>(kBytes / (4 * std::int64_t(model.info().vocab)), 16, 512));
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
  f.unit = documents ? "document" : "window";
  f.units = int(documents ? read.size() : text.windows.size());
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
  f.divergence_median = quantile(divergences, 0.5);
  f.divergence_99 = quantile(divergences, 0.99);
  f.divergence_most = quantile(divergences, 1);
  return f;
}

Interval varying_mean(std::span<const Term> units, double least, double most) {
  constexpr double kRounding = 1e-12;  // relative, of averages
  const Interval found = mean_interval(units, least, most);
  const bool vary = std::ranges::any_of(units, [&](const Term& u) {
    return u.bottom > 0 && std::abs(u.top / u.bottom - found.value) > kRounding * std::abs(found.value);
  });
  return vary ? found : Interval{found.value, kUnknown, kUnknown};
}

OutputFigures figures_of(const Outputs& model, const Outputs& reference) {
  assert(model.size() == reference.size());
  std::vector<Term> equal, prefix, share;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto differ = std::ranges::mismatch(model[i], reference[i]).in2;
    const double common = double(differ - reference[i].begin());
    equal.push_back({model[i] == reference[i] ? 1.0 : 0.0, 1});
    prefix.push_back({common, 1});
    share.push_back({common, double(reference[i].size())});
  }
  return {int(model.size()), share_interval(equal), varying_mean(prefix, 0, kNoLimit), varying_mean(share, 0, 1)};
}

}  // namespace foretoken

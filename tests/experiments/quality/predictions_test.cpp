// A model's predictions of a text: the loss that follows from the logits of Transformers, whatever the windows and the
// pieces; nothing between a model and itself; more where its weights are coarser.
#include "experiments/quality/predictions.h"

#include <cmath>

#include "framework/model/convert.h"
#include "framework/model/transformer.h"
#include "tests/framework/model/golden.h"
#include "tests/support/sentence.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

// A text of one document, in one window.
Text whole(std::vector<Token> tokens) {
  const int n = int(tokens.size());
  return {{{std::move(tokens), 0}}, {{0, 0, 1, n}}};
}

// `documents` texts of `tokens` tokens each, of a vocabulary of `vocab`.
Text arbitrary(int documents, int tokens, int vocab, const WindowOptions& windows) {
  Text text;
  for (int d = 0; d < documents; ++d) {
    Document document;
    for (int t = 0; t < tokens; ++t) document.tokens.push_back(Token((d * 7919 + t * t * 31 + t) % vocab));
    text.documents.push_back(std::move(document));
  }
  text.windows = windows_of(text.documents, windows);
  return text;
}

// Mean -log p of the tokens after the first by these logits [tokens, vocab].
double mean_loss(const Tensor& logits, std::span<const Token> tokens) {
  double loss = 0;
  for (std::size_t t = 1; t < tokens.size(); ++t) {
    const float* row = logits.row<float>(std::int64_t(t) - 1);
    double sum = 0;
    for (int x = 0; x < logits.dim(1); ++x) sum += std::exp(double(row[x]));
    loss += std::log(sum) - double(row[tokens[t]]);
  }
  return loss / double(tokens.size() - 1);
}

// Of every tiny model and prompt, on both host devices.
TEST(Predictions, HaveTheLossThatFollowsFromTheLogitsOfTransformers) {
  int compared = 0;
  for (const std::string& name : tiny_model_names()) {
    const Checkpoint golden = Checkpoint::open_file(kRoot / "tests" / "data" / "golden" / (name + ".safetensors"));
    for (const bool fast : {false, true}) {
      const auto backend = fast ? make_cpu_backend(2) : make_reference_backend();
      const std::shared_ptr<Model> model(new Transformer(golden_model(*backend, kTinyModels / name, kSingle)));
      for (int p = 0; golden.has("ids" + std::to_string(p)); ++p) {
        const Tensor ids = golden.tensor("ids" + std::to_string(p)), want = golden.tensor("logits" + std::to_string(p));
        const std::span<const Token> tokens = ids.values<Token>();
        if (want.dim(0) != ids.dim(0) || tokens.size() < 2) continue;
        const Text text = whole({tokens.begin(), tokens.end()});
        Reading reading(*backend, model, int(tokens.size()));
        const PredictionFigures f = figures_of(text, predict(text, reading, nullptr), false);
        EXPECT_NEAR(f.loss.value, mean_loss(want, tokens), 1e-5) << name << ", prompt " << p;
        EXPECT_DOUBLE_EQ(f.perplexity.value, std::exp(f.loss.value));
        EXPECT_FALSE(f.divergence.known());
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 20);
}

// Every token of a window is predicted from exactly the tokens before it: by as many windows as there are tokens, each
// fed anew, the same losses come out.
TEST(Predictions, DoNotDependOnThePiecesOfAForward) {
  const auto backend = make_cpu_backend(1);
  const std::shared_ptr<Model> model = tiny_model(*backend, "llama3", "f32");
  const Text text = arbitrary(1, 60, model->info().vocab, {60, 59, 0});
  Text prefixes{text.documents, {}};
  for (int t = 1; t < 60; ++t) prefixes.windows.push_back({0, 0, t, t + 1});
  Reading reading(*backend, model, 60);
  const auto at_once = predict(text, reading, nullptr), one_by_one = predict(prefixes, reading, nullptr);
  ASSERT_EQ(at_once.size(), 59u);
  ASSERT_EQ(one_by_one.size(), 59u);
  for (std::size_t i = 0; i < at_once.size(); ++i) EXPECT_EQ(at_once[i].loss, one_by_one[i].loss) << i;
  // In pieces of 7 rows, from one window.
  const std::vector<Token> tokens = text.windows[0].tokens(text.documents);
  reading.begin(tokens);
  for (int at = 0; at < 59; at += 7) {
    const int n = std::min(7, 59 - at);
    const Tensor logits = reading.logits(at, n);
    for (int i = 0; i < n; ++i)
      EXPECT_EQ(score_of({logits.row<float>(i), std::size_t(logits.dim(1))}, tokens[std::size_t(at + i + 1)]).loss,
                at_once[std::size_t(at + i)].loss);
  }
}

TEST(Predictions, OfAModelAndItselfDoNotDiffer) {
  const auto backend = make_cpu_backend(2);
  const std::shared_ptr<Model> model = tiny_model(*backend, "qwen2"), again = tiny_model(*backend, "qwen2");
  const Text text = arbitrary(12, 40, model->info().vocab, {16, 8, 0});
  Reading a(*backend, model, 16), b(*backend, again, 16);
  const PredictionFigures f = figures_of(text, predict(text, a, &b), true);
  EXPECT_EQ(f.tokens, 12 * 39);
  EXPECT_EQ(f.divergence.value, 0);
  EXPECT_FALSE(f.divergence.bounded()) << "nothing varies";
  EXPECT_EQ(f.divergence_most, 0);
  EXPECT_EQ(f.excess.value, 0);
  EXPECT_FALSE(f.excess.bounded());
  EXPECT_EQ(f.agreement.value, 1);
  EXPECT_EQ(f.agreement.high, 1);
  EXPECT_LT(f.agreement.low, 1);  // 468 tokens do not prove it of all
  EXPECT_NEAR(f.overlap.value, 1, 1e-12);
  EXPECT_EQ(f.perplexity.value, f.reference_perplexity.value);
}

TEST(Predictions, DifferMoreWhereWeightsAreCoarser) {
  const auto backend = make_cpu_backend(2);
  const std::shared_ptr<Model> reference = tiny_model(*backend, "llama2", "f32");
  const Text text = arbitrary(12, 40, reference->info().vocab, {32, 16, 0});
  std::vector<PredictionFigures> f;
  for (const char* dtype : {"bf16", "int8"}) {
    Reading a(*backend, tiny_model(*backend, "llama2", dtype), 32), b(*backend, reference, 32);
    f.push_back(figures_of(text, predict(text, a, &b), true));
  }
  EXPECT_GT(f[0].divergence.low, 0);
  EXPECT_GT(f[1].divergence.low, f[0].divergence.high);
  EXPECT_LT(f[1].overlap.value, f[0].overlap.value);
  EXPECT_GE(f[1].divergence_most, f[1].divergence_99);
  EXPECT_GE(f[1].divergence_99, f[1].divergence_median);
}

// Ten documents or more are the units; of fewer the windows.
TEST(Predictions, HaveIntervalsOverWhatIsIndependent) {
  const auto backend = make_cpu_backend(1);
  const std::shared_ptr<Model> model = tiny_model(*backend, "llama2");
  Reading reading(*backend, model, 16);
  const auto figures = [&](int documents) {
    const Text text = arbitrary(documents, 40, model->info().vocab, {16, 8, 0});
    return figures_of(text, predict(text, reading, nullptr), false);
  };
  const PredictionFigures many = figures(10), few = figures(9);
  EXPECT_EQ(many.unit, "document");
  EXPECT_EQ(many.units, 10);
  EXPECT_EQ(few.unit, "window");
  EXPECT_EQ(few.units, 9 * 4);
  for (const PredictionFigures& f : {many, few}) {
    EXPECT_LT(f.perplexity.low, f.perplexity.value);
    EXPECT_GT(f.perplexity.high, f.perplexity.value);
  }
  const PredictionFigures repeated = figures(10);
  EXPECT_EQ(repeated.perplexity.low, many.perplexity.low) << "intervals are deterministic";
}

// A model one of whose norms makes its logits infinite.
TEST(Predictions, RefuseLogitsThatAreNotFinite) {
  class Damaged final : public TensorSource {
   public:
    explicit Damaged(const Checkpoint& source) : source_(source) {}
    Tensor tensor(const std::string& name, const Shape& expected) const override {
      const Tensor t = converted(source_.tensor(name, expected), DType::f32);
      if (name != "model.norm.weight") return t;
      const Tensor copy = Tensor::host(t.shape(), DType::f32);
      copy_on_host(t, copy);
      copy.data<float>()[1] = std::nanf("");
      return copy;
    }
    std::vector<std::string> names() const override { return source_.names(); }
    std::string where() const override { return source_.where(); }

   private:
    const Checkpoint& source_;
  };
  const auto backend = make_cpu_backend(1);
  const Checkpoint source = Checkpoint::open(kTinyModels / "llama2");
  const std::shared_ptr<Model> good = tiny_model(*backend, "llama2"),
                               bad = std::make_shared<Transformer>(*backend, ModelConfig::load(kTinyModels / "llama2"),
                                                                   Damaged(source), "the damaged one", 0,
                                                                   TransformerOptions{});
  const Text text = arbitrary(2, 20, good->info().vocab, {16, 8, 0});
  Reading a(*backend, good, 16), b(*backend, bad, 16);
  EXPECT_TRUE(
      says(sentence_of([&] { (void)predict(text, b, nullptr); }), "the damaged one", "document 1", "not finite"));
  EXPECT_TRUE(says(sentence_of([&] { (void)predict(text, a, &b); }), "the damaged one", "not finite"));
}

// By hand; tokens with a large divergence stand anywhere in a text.
TEST(Predictions, HaveTheMiddleAndTheGreatestDivergences) {
  Text text = whole(std::vector<Token>(102, 1));
  std::vector<TokenScore> scores(101);
  for (int i = 0; i < 101; ++i) scores[std::size_t(i)].divergence = double(i * 37 % 101);  // 0 ... 100, each once
  const PredictionFigures f = figures_of(text, scores, true);
  EXPECT_DOUBLE_EQ(f.divergence_median, 50);
  EXPECT_DOUBLE_EQ(f.divergence_99, 99);
  EXPECT_DOUBLE_EQ(f.divergence_most, 100);
}

TEST(Predictions, RefuseAnotherVocabulary) {
  const auto backend = make_cpu_backend(1);
  const std::shared_ptr<Model> model = tiny_model(*backend, "llama2");
  ModelInfo larger = model->info(), other = model->info();
  larger.vocab += 1, other.vocabulary += 1, other.name = "another";
  const Text text = whole({1, 2, 3}), outside = whole({1, model->info().vocab, 3});
  for (const ModelInfo& reference : {larger, other})
    EXPECT_TRUE(says(sentence_of([&] { expect_vocabulary(text, model->info(), &reference); }), "llama2", reference.name,
                     "different vocabularies"));
  EXPECT_TRUE(says(sentence_of([&] { expect_vocabulary(outside, model->info(), nullptr); }), "outside the vocabulary"));
  EXPECT_EQ(sentence_of([&] { expect_vocabulary(text, model->info(), &model->info()); }), "");
}

// What is thrown between forwards ends the work.
TEST(Predictions, CanBeInterrupted) {
  const auto backend = make_cpu_backend(1);
  const std::shared_ptr<Model> model = tiny_model(*backend, "llama2");
  const Text text = arbitrary(3, 40, model->info().vocab, {16, 8, 0});
  Reading reading(*backend, model, 16);
  std::vector<double> shares;
  const auto stop = [&](double done) {
    shares.push_back(done);
    if (shares.size() == 3) throw Error("enough");
  };
  EXPECT_EQ(sentence_of([&] { (void)predict(text, reading, nullptr, stop); }), "enough");
  EXPECT_EQ(shares.size(), 3u);
  EXPECT_EQ(predict(text, reading, nullptr).size(), 3u * 39) << "a reading that was left can be used again";
}

}  // namespace
}  // namespace foretoken::test

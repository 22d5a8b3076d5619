// Scales that are folded into a model change no output, and those that AWQ chooses make rounding cost less.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "experiments/quality/predictions.h"
#include "experiments/quantize/calibration.h"
#include "experiments/quantize/rounding_error.h"
#include "experiments/quantize/scaling.h"
#include "framework/model/convert.h"
#include "framework/model/transformer.h"
#include "tests/framework/model/golden.h"
#include "tests/support/sentence.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

// A model some of whose tensors are replaced.
class Replaced final : public TensorSource {
 public:
  explicit Replaced(const Checkpoint& source) : source_(source) {}
  void take(const DenseLayer& layer) {
    for (const StoredTensor& t : layer.others) tensors_[t.name] = t.values;
    for (const auto& [module, w] : layer.matrices) tensors_[layer.prefix + module + ".weight"] = w.values;
  }
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const auto found = tensors_.find(name);
    return found != tensors_.end() ? found->second : source_.tensor(name, expected);
  }
  std::vector<std::string> names() const override { return source_.names(); }
  std::string where() const override { return source_.where(); }

 private:
  const Checkpoint& source_;
  std::map<std::string, Tensor> tensors_;
};

std::vector<float> random_scales(std::int64_t n, std::mt19937& random) {
  std::vector<float> s;
  for (std::int64_t i = 0; i < n; ++i) s.push_back(std::exp(std::normal_distribution<float>()(random)));
  return s;
}

Tensor logits_of(Backend& backend, const ModelConfig& config, const TensorSource& source) {
  TransformerOptions options;
  options.dtype = "f32";
  const auto model = std::make_shared<Transformer>(backend, config, source, "a model", 0, options);
  std::vector<Token> tokens;
  for (int t = 0; t < 30; ++t) tokens.push_back(Token((t * t * 7 + t * 3) % config.vocab));
  Reading reading(backend, model, 30);
  reading.begin(tokens);
  const Tensor logits = reading.logits(0, 30), copy = Tensor::host(logits.shape(), DType::f32);
  copy_on_host(logits, copy);
  return copy;
}

// Every fold of every tiny model, by scales that differ by powers of ten: the logits stay, to the rounding of f32.
TEST(Folding, LeavesLogitsUnchanged) {
  const auto backend = make_reference_backend();
  std::mt19937 random(3);
  for (const std::string& name : tiny_model_names()) {
    const ModelConfig config = ModelConfig::load(kTinyModels / name);
    if (config.post_norms || config.fused) continue;  // calibration refuses them
    if (config.mixture) {
      EXPECT_TRUE(says(sentence_of([&] { DenseModel(kTinyModels / name); }),
                       config.quantization ? "is quantized already" : "is a mixture of experts"));
      continue;
    }
    const DenseModel model(kTinyModels / name);
    const auto folds = folds_of(model.config());
    EXPECT_EQ(folds.size(), model.config().kv_heads == model.config().heads ? 4u : 3u);
    const Tensor want = logits_of(*backend, model.config(), model.checkpoint());
    for (std::size_t f = 0; f <= folds.size(); ++f) {  // each alone, then all together
      Replaced folded(model.checkpoint());
      for (int l = 0; l < model.config().layers; ++l) {
        DenseLayer layer = model.layer(l);
        for (std::size_t k = 0; k < folds.size(); ++k) {
          if (f < folds.size() && k != f) continue;
          const std::int64_t in = layer.matrices.at(Calibration::products()[folds[k].product].front()).in;
          const std::vector<float> scales = foldable(layer, folds[k], random_scales(in, random));
          fold_into(layer, folds[k], scales);
        }
        folded.take(layer);
      }
      const Tensor got = logits_of(*backend, model.config(), folded);
      EXPECT_LE(relative_error(got.values<float>(), want.values<float>()), 1e-5) << name << ", fold " << f;
    }
  }
}

TEST(Folding, KeepsScalesThatNormsCanHave) {
  const DenseModel model(kTinyModels / "bf16");
  const DenseLayer layer = model.layer(0);
  const Fold fold = folds_of(model.config()).front();
  const std::vector<float> scales(64, 1.37f), found = foldable(layer, fold, scales);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(found[i], 1.37f, 1.37f / 200);  // bf16 has 8 bits
  const std::vector<float> again = foldable(layer, fold, found), ones(64, 1.0f);
  EXPECT_EQ(foldable(layer, fold, ones), ones);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(again[i], found[i], 1e-6f);
}

Tensor random_matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
  std::mt19937 random(seed);
  const Tensor t = Tensor::host({rows, columns}, DType::f32);
  for (float& x : t.values<float>()) x = std::normal_distribution<float>()(random);
  return t;
}

// Inputs some of which are large, and their mean magnitudes.
struct Outliers {
  Outliers() {
    for (std::int64_t r = 0; r < x.dim(0); ++r)
      for (std::int64_t i = 0; i < x.dim(1); i += 17) x.row<float>(r)[i] *= 20;
    for (std::int64_t i = 0; i < x.dim(1); ++i) {
      double sum = 0;
      for (std::int64_t r = 0; r < x.dim(0); ++r) sum += double(std::abs(x.row<float>(r)[i]));
      magnitudes.push_back(float(sum / double(x.dim(0))));
    }
  }
  Tensor x = random_matrix(200, 256, 5);
  std::vector<float> magnitudes;
};

std::vector<float> as_they_are(std::span<const float> s) { return {s.begin(), s.end()}; }

TEST(Awq, ScalesLargeInputs) {
  const auto device = make_cpu_backend(2);
  const Outliers inputs;
  const Weight a = Weight::dense(random_matrix(40, 256, 1)), b = Weight::dense(random_matrix(24, 256, 2));
  for (const char* name : {"int4", "int4_asymmetric", "nf4"}) {
    const WeightFormat& format = *find_format(name);
    const Weight both[] = {a, b};
    const std::vector<float> s = awq_scales(*device, both, format, inputs.magnitudes, inputs.x, as_they_are);
    EXPECT_GT(s[17], 1.5f * s[16]) << name;
    double scaled = 0, plain = 0;
    for (const Weight& w : both) {
      scaled += squared_outputs(*device, inputs.x, weights_lost(w, quantize(with_columns(w, s), format), s));
      plain += squared_outputs(*device, inputs.x, weights_lost(w, quantize(w, format)));
    }
    EXPECT_LT(scaled, 0.7 * plain) << name;
  }
}

// Where all inputs are alike no scale is better than none.
TEST(Awq, LeavesEqualInputsAlone) {
  const auto device = make_cpu_backend(2);
  const Weight w[] = {Weight::dense(random_matrix(40, 128, 1))};
  const std::vector<float> equal(128, 0.8f);
  for (const float s : awq_scales(*device, w, *find_format("int4"), equal, random_matrix(50, 128, 4), as_they_are))
    EXPECT_EQ(s, 1.0f);
}

// Never farther from the dense outputs than rounding to nearest, and nearer where a group has one great weight that
// meets small inputs.
TEST(Awq, CutsWeightsWhereOutputsProfit) {
  const auto host = make_cpu_backend(2);
  const Weight dense = Weight::dense(random_matrix(40, 256, 1));
  const Tensor x = random_matrix(200, 256, 6);
  for (std::int64_t o = 0; o < 40; ++o) dense.values.row<float>(o)[9] = 6;
  for (std::int64_t r = 0; r < 200; ++r) x.row<float>(r)[9] *= 0.01f;
  for (const WeightFormat* format : weight_formats()) {
    if (format->coding() == Coding::sparse) continue;  // no codes
    const auto error = [&](const Weight& w) { return output_error(*host, x, dense, w).relative(); };
    const double cut = error(awq_rounded(*host, dense, *format, x)), nearest = error(quantize(dense, *format));
    EXPECT_LE(cut, nearest) << format->name();
    EXPECT_LT(cut, format->name() == "int4" ? 0.8 * nearest : 1.0);
  }
}

TEST(SmoothQuant, IsTheFormulaOfItsPaper) {
  const Tensor a = Tensor::host({1, 3}, DType::f32), b = Tensor::host({2, 3}, DType::f32);
  std::ranges::copy(std::vector<float>{1, -4, 0}, a.data<float>());
  std::ranges::copy(std::vector<float>{-2, 1, 0, 1, 3, 0}, b.data<float>());
  const Weight both[] = {Weight::dense(a), Weight::dense(b)};
  const std::vector<float> largest = {8, 0, 5}, s = smoothing_scales(both, largest, 0.25);
  EXPECT_NEAR(s[0], std::pow(8, 0.25) / std::pow(2, 0.75), 1e-6);
  EXPECT_EQ(s[1], 1.0f) << "an input that is always 0";
  EXPECT_EQ(s[2], 1.0f) << "weights that are 0";
}

}  // namespace
}  // namespace foretoken::test

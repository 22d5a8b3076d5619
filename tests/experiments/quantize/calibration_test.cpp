// Layer by layer a calibration text goes through a model as it does at once.
#include "experiments/quantize/calibration.h"

#include <cmath>
#include <cstring>

#include "experiments/quality/predictions.h"
#include "framework/model/convert.h"
#include "kernels/formats/format.h"
#include "tests/framework/model/golden.h"
#include "tests/support/sentence.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

Tensor f32_of(const Tensor& t) { return converted(t, DType::f32); }

std::vector<std::vector<Token>> some_windows(int vocab) {
  std::vector<std::vector<Token>> windows;
  for (const int length : {30, 7, 19}) {
    windows.emplace_back();
    for (int t = 0; t < length; ++t) windows.back().push_back(Token((length * 13 + t * t * 5 + t) % vocab));
  }
  return windows;
}

// The states behind the last layer, by the last norm and the head in double, are the logits of the whole model.
TEST(Calibration, ReadsATextAsTheWholeModelDoes) {
  for (const std::string& name : tiny_model_names()) {
    const ModelConfig config = ModelConfig::load(kTinyModels / name);
    if (config.mixture) continue;  // refused before (DenseModel)
    const Checkpoint checkpoint = Checkpoint::open(kTinyModels / name);
    const auto windows = some_windows(config.vocab);
    const auto backend = make_reference_backend();
    if (config.post_norms || config.fused || !config.still_layers.empty()) {
      EXPECT_TRUE(says(sentence_of([&] { Calibration(*backend, config, checkpoint, windows); }), config.architecture,
                       "--method rtn"));
      continue;
    }
    Calibration text(*backend, config, checkpoint, windows);
    for (int l = 0; l < config.layers; ++l) text.set_states(text.outputs(l, {}));

    const std::shared_ptr<Model> whole(new Transformer(golden_model(*backend, kTinyModels / name, {})));
    Reading reading(*backend, whole, 30);
    const Tensor norm = backend->upload(f32_of(checkpoint.tensor("model.norm.weight")));
    const Tensor head = f32_of(checkpoint.tensor(config.tied_head ? "model.embed_tokens.weight" : "lm_head.weight"));
    std::int64_t at = 0;
    for (const auto& window : windows) {
      reading.begin(window);
      const Tensor want = reading.logits(0, int(window.size()));
      const Tensor states = text.states().rows(at, std::int64_t(window.size()));
      const Tensor logits = backend->linear(backend->rms_norm(states, norm, float(config.norm_epsilon)),
                                            backend->prepare(Weight::dense(head)));
      EXPECT_LE(relative_error(logits.values<float>(), want.values<float>()), 1e-6) << name;
      at += std::int64_t(window.size());
    }
  }
}

// The inputs of each product are as wide as its matrices, and those of the first are the norms of the states.
TEST(Calibration, GivesTheInputsOfEachProduct) {
  const ModelConfig config = ModelConfig::load(kTinyModels / "qwen3");
  const Checkpoint checkpoint = Checkpoint::open(kTinyModels / "qwen3");
  const auto backend = make_reference_backend();
  Calibration text(*backend, config, checkpoint, some_windows(config.vocab));
  text.set_states(text.outputs(0, {}));
  const Tensor gain = f32_of(checkpoint.tensor("model.layers.1.input_layernorm.weight"));
  const Tensor normed = backend->rms_norm(text.states(), gain, float(config.norm_epsilon));
  std::vector<std::int64_t> rows(Calibration::products().size());
  const Tensor outputs = text.observe(1, [&](std::size_t product, const Tensor& x) {
    for (const std::string& module : Calibration::products()[product])
      EXPECT_EQ(checkpoint.tensor("model.layers.1." + module + ".weight").dim(1), x.dim(1)) << module;
    if (product == 0) {
      const Tensor want = normed.rows(rows[0], x.dim(0));
      EXPECT_EQ(std::memcmp(x.raw(), want.raw(), std::size_t(x.bytes())), 0);
    }
    rows[product] += x.dim(0);
  });
  for (const std::int64_t n : rows) EXPECT_EQ(n, 30 + 7 + 19);
  EXPECT_TRUE(std::ranges::equal(outputs.values<float>(), text.outputs(1, {}).values<float>()));
}

// With other matrices in a layer its outputs differ.
TEST(Calibration, ReadsWithTheMatricesThatItIsGiven) {
  const ModelConfig config = ModelConfig::load(kTinyModels / "llama2");
  const Checkpoint checkpoint = Checkpoint::open(kTinyModels / "llama2");
  const auto backend = make_reference_backend();
  Calibration text(*backend, config, checkpoint, some_windows(config.vocab));
  const Weight w = Weight::dense(f32_of(checkpoint.tensor("model.layers.0.mlp.down_proj.weight")));
  const Tensor dense = text.outputs(0, {}), same = text.outputs(0, {{"mlp.down_proj", w}}),
               rounded = text.outputs(0, {{"mlp.down_proj", quantize(w, *find_format("int4"))}});
  EXPECT_LE(relative_error(same.values<float>(), dense.values<float>()), 1e-7);
  EXPECT_GT(relative_error(rounded.values<float>(), dense.values<float>()), 1e-4);
}

// Another device reads the same to the rounding of its activations and caches, here bf16: some times 2^-9.
TEST(Calibration, ReadsOnAnyDevice) {
  const ModelConfig config = ModelConfig::load(kTinyModels / "bf16");
  const Checkpoint checkpoint = Checkpoint::open(kTinyModels / "bf16");
  const auto reference = make_reference_backend(), cpu = make_cpu_backend(2);
  std::vector<Tensor> want[4], got[4];
  Calibration a(*reference, config, checkpoint, some_windows(config.vocab)),
      b(*cpu, config, checkpoint, some_windows(config.vocab));
  const Tensor expected = a.observe(0, [&](std::size_t product, const Tensor& x) { want[product].push_back(x); }),
               found = b.observe(0, [&](std::size_t product, const Tensor& x) { got[product].push_back(x); });
  for (int p = 0; p < 4; ++p) {
    ASSERT_EQ(got[p].size(), want[p].size());
    for (std::size_t w = 0; w < got[p].size(); ++w)
      EXPECT_LE(relative_error(got[p][w].values<float>(), want[p][w].values<float>()), 1.6e-2) << p;
  }
  EXPECT_LE(relative_error(found.values<float>(), expected.values<float>()), 1.6e-2);
}

}  // namespace
}  // namespace foretoken::test

// Quantized checkpoints as files: their tensors, what is copied, how work goes on where it stopped, and what is
// refused.
#include <cmath>
#include <fstream>

#include "experiments/quantize/rounding_error.h"
#include "experiments/quantize/safetensors_file.h"
#include "tests/experiments/quantize/quantized.h"

namespace foretoken::test {
namespace {

double number(const Tensor& t, std::int64_t o, std::int64_t i) {
  return t.dtype() == DType::f32 ? double(t.row<float>(o)[i]) : double(float(t.row<bf16>(o)[i]));
}

// By the rule of int-quantized.
SquaredError error_of(const Tensor& dense, const Tensor& codes, const Tensor& scales) {
  SquaredError all;
  for (std::int64_t o = 0; o < dense.dim(0); ++o)
    for (std::int64_t i = 0; i < dense.dim(1); ++i) {
      const float rounded = float(*scales.row<bf16>(o)) * float(codes.row<std::int8_t>(o)[i]);
      const double w = number(dense, o, i), d = w - double(float(bf16(rounded)));
      all += {d * d, w * w};
    }
  return all;
}

TEST_F(Quantized, HasTheRoundedMatrices) {
  const QuantizeOptions o = options("qwen2", "int8");
  const std::vector<LayerError> errors = quantize(o);
  const ModelConfig config = ModelConfig::load(o.model);
  ASSERT_EQ(int(errors.size()), config.layers);
  const Checkpoint before = Checkpoint::open(o.model);
  const auto after = tensors_in(o.out);
  for (int l = 0; l < config.layers; ++l) {
    SquaredError all;
    double worst = 0;
    for (const char* module : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                               "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      const std::string name = "model.layers." + std::to_string(l) + "." + module + ".weight";
      ASSERT_EQ(after.at(name).dtype(), DType::i8);
      const SquaredError own = error_of(before.tensor(name), after.at(name), after.at(name + "_scale"));
      all += own, worst = std::max(worst, own.relative());
    }
    const LayerError& found = errors[std::size_t(l)];
    EXPECT_NEAR(found.error, all.relative(), 1e-9);
    EXPECT_NEAR(found.worst, worst, 1e-9);
    EXPECT_GT(found.error, 0);
    EXPECT_LT(found.error, 0.02);
  }
}

TEST_F(Quantized, HasEverythingElseAsItWas) {
  const QuantizeOptions o = options("qwen2", "int8");
  (void)quantize(o);
  const Checkpoint before = Checkpoint::open(o.model);
  const auto after = tensors_in(o.out);
  for (const char* kept : {"model.embed_tokens.weight", "model.norm.weight", "model.layers.0.input_layernorm.weight",
                           "model.layers.0.self_attn.q_proj.bias"}) {
    const Tensor a = before.tensor(kept), b = after.at(kept);
    ASSERT_EQ(a.shape(), b.shape()) << kept;
    ASSERT_EQ(a.dtype(), b.dtype()) << kept;
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), std::size_t(a.bytes())), 0) << kept;
  }
  const auto config_after = read_json(o.out / "config.json");
  EXPECT_EQ(config_after["quantization_config"]["quant_method"], "compressed-tensors");
  auto config_before = read_json(o.model / "config.json");
  config_before["quantization_config"] = config_after["quantization_config"];
  EXPECT_EQ(config_before, config_after);
  EXPECT_FALSE(fs::exists(o.out.string() + ".partial"));
}

TEST_F(Quantized, OfFewerBitsIsFarther) {
  double before = 0;
  for (const char* format : {"int8_group", "int6", "int5", "int4"}) {
    QuantizeOptions o = options("llama2", format);
    o.out = here_ / format;
    const double error = quantize(o).front().error;
    EXPECT_GT(error, 1.5 * before) << format;
    before = error;
  }
}

TEST_F(Quantized, GoesOnWhereItStopped) { expect_resumption(options("llama3", "int4"), here_ / "elsewhere"); }

TEST_F(Quantized, RefusesWhatItCannotDo) {
  const QuantizeOptions o = options("llama2", "int8");
  QuantizeOptions exists = o, absent = o, unknown = o, again = o;
  exists.out = here_;
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(exists); }), here_.string(), "exists already", "--out"));
  absent.model = here_ / "absent";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(absent); }), "absent", "does not exist"));
  unknown.format = "int3";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(unknown); }), "int3", "known"));
  QuantizeOptions narrow = o, file = o;
  narrow.format = "fp8_block";
  EXPECT_TRUE(
      says(sentence_of([&] { (void)quantize(narrow); }), "'model.layers.0.", "64 inputs", "fp8_block", "--format"));
  file.model = here_ / "model.gguf";
  std::ofstream(file.model) << "GGUF";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(file); }), "model.gguf is a file", "directories", "name the"));
  (void)quantize(o);
  again.model = o.out, again.out = here_ / "again";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(again); }), o.out.string(), "quantized already"));
  fs::create_directories(here_ / "mine.partial" / "own work");
  again = o, again.out = here_ / "mine";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(again); }), "mine.partial", "did not make it"));
}

// A matrix with a NaN: nothing is left behind, since no layer was finished.
TEST_F(Quantized, RefusesNumbersThatAreNotFinite) {
  QuantizeOptions o = options("llama2", "int8");
  o.model = here_ / "damaged";
  copy_model(kModels / "llama2", o.model, [](const std::string& name, const Tensor& t) {
    if (name == "model.layers.0.mlp.up_proj.weight") t.data<float>()[5] = std::nanf("");
    return t;
  });
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(o); }), "model.layers.0.mlp.up_proj", "not finite"));
  EXPECT_FALSE(fs::exists(o.out));
  EXPECT_FALSE(fs::exists(o.out.string() + ".partial"));
}

TEST_F(Quantized, AFileIsWholeOrNotThere) {
  const Tensor t = Tensor::host({3, 5}, DType::f32), b = Tensor::host({7}, DType::u8);
  for (int i = 0; i < 15; ++i) t.data<float>()[i] = float(i) / 3;
  for (int i = 0; i < 7; ++i) b.data<std::uint8_t>()[i] = std::uint8_t(i);
  const std::vector<StoredTensor> tensors = {stored_tensor("bytes", b), stored_tensor("numbers", t)};
  write_safetensors(here_ / "a.safetensors", tensors);
  const auto read = map_safetensors(here_ / "a.safetensors");
  EXPECT_EQ(read.at("numbers").shape(), (Shape{3, 5}));
  EXPECT_EQ(std::memcmp(read.at("numbers").raw(), t.raw(), std::size_t(t.bytes())), 0);
  EXPECT_EQ(std::memcmp(read.at("bytes").raw(), b.raw(), 7), 0);
  // A directory of the file's name: the file cannot take its place, and no piece of it stays.
  fs::create_directories(here_ / "b.safetensors" / "x");
  EXPECT_TRUE(says(sentence_of([&] { write_safetensors(here_ / "b.safetensors", tensors); }), "b.safetensors",
                   "cannot be written"));
  for (const auto& entry : fs::directory_iterator(here_)) EXPECT_NE(entry.path().extension(), ".writing");
}

}  // namespace
}  // namespace foretoken::test

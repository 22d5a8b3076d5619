// Quantized checkpoints as files: their tensors, what is copied, how work goes on where it stopped, and what is
// refused.
#include "experiments/quantize/quantize.h"

#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "experiments/quantize/rounding_error.h"
#include "experiments/quantize/safetensors_file.h"
#include "framework/model/safetensors.h"
#include "framework/text/json_file.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(FORETOKEN_SOURCE_DIR) / "tests" / "data" / "models";

class Quantized : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(here_); }
  void TearDown() override { fs::remove_all(here_); }

  QuantizeOptions options(const std::string& model, const std::string& format) const {
    QuantizeOptions o;
    o.model = kModels / model, o.format = format, o.out = here_ / "out";
    return o;
  }
  std::vector<LayerError> quantize(const QuantizeOptions& o) const {
    return quantize_checkpoint(o, [](int, int) {});
  }

  fs::path here_ = fs::temp_directory_path() /
                   ("foretoken_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

// All tensors of a directory, by its index.
std::map<std::string, Tensor> tensors_in(const fs::path& directory) {
  const auto index = read_json(directory / "model.safetensors.index.json");
  std::map<std::string, Tensor> all;
  for (const auto& [name, file] : index["weight_map"].items())
    all[name] = map_safetensors(directory / file.get<std::string>()).at(name);
  return all;
}

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

// Stopped after the first layer, the work goes on with the second and gives the same files as in one go.
void expect_resumption(const QuantizeOptions& o, const fs::path& elsewhere) {
  QuantizeOptions whole = o;
  whole.out = elsewhere;
  const auto go = [](const QuantizeOptions& options) { return quantize_checkpoint(options, [](int, int) {}); };
  const std::vector<LayerError> want = go(whole);
  const auto stop = [](int finished, int) {
    if (finished == 1) throw Error("stop");
  };
  EXPECT_EQ(sentence_of([&] { (void)quantize_checkpoint(o, stop); }), "stop");
  EXPECT_FALSE(fs::exists(o.out));
  fs::path first;
  for (const auto& entry : fs::directory_iterator(o.out.string() + ".partial"))
    if (entry.path().filename().string().starts_with("model-00001-of-")) first = entry.path();
  ASSERT_TRUE(fs::exists(first));
  const auto written = fs::last_write_time(first);
  QuantizeOptions other = o;
  other.format = "int8";
  EXPECT_TRUE(says(sentence_of([&] { (void)go(other); }), ".partial", "another command", "--out"));
  ASSERT_TRUE(fs::exists(first)) << "what is refused is left as it was";
  const std::vector<LayerError> errors = go(o);
  EXPECT_EQ(fs::last_write_time(o.out / first.filename()), written) << "a finished layer is not written again";
  ASSERT_EQ(errors.size(), want.size());
  for (std::size_t l = 0; l < want.size(); ++l) EXPECT_EQ(errors[l].error, want[l].error);
  for (const auto& entry : fs::directory_iterator(whole.out))
    EXPECT_EQ(read_file(entry.path()), read_file(o.out / entry.path().filename())) << entry.path();
  EXPECT_EQ(std::distance(fs::directory_iterator(o.out), {}), std::distance(fs::directory_iterator(whole.out), {}));
}

TEST_F(Quantized, GoesOnWhereItStopped) { expect_resumption(options("llama3", "int4"), here_ / "whole"); }

class Calibrated : public Quantized {
 protected:
  QuantizeOptions options(const std::string& format, long tokens) const {
    const fs::path root = fs::path(FORETOKEN_SOURCE_DIR) / "experiments";
    QuantizeOptions o;
    o.model = root / "models" / "draft", o.format = format, o.out = here_ / "out";
    o.method = {"gptq", (root / "prompts.jsonl").string(), tokens};
    return o;
  }
};

TEST_F(Calibrated, GoesOnWhereItStopped) { expect_resumption(options("int4", 400), here_ / "whole"); }

// The weights are farther from the dense ones than those rounded to nearest, and the outputs nearer to the dense ones.
TEST_F(Calibrated, GivesNearerOutputsByFartherWeights) {
  QuantizeOptions o = options("int4", 2000), nearest = o;
  nearest.method = {}, nearest.out = here_ / "nearest";
  const std::vector<LayerError> found = quantize(o), rounded = quantize(nearest);
  ASSERT_EQ(found.size(), 2u);
  for (std::size_t l = 0; l < found.size(); ++l) {
    EXPECT_TRUE(std::isnan(rounded[l].outputs));
    EXPECT_GT(found[l].error, rounded[l].error);
    EXPECT_LT(found[l].outputs, rounded[l].error);
    EXPECT_GT(found[l].outputs, 0);
  }
}

TEST_F(Calibrated, RefusesTextsThatAreMissingOrTooShort) {
  QuantizeOptions without = options("int4", 400), unused = without, few = options("int4", 50);
  without.method.calibrate = "";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(without); }), "gptq", "--calibrate"));
  unused.method.name = "rtn";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(unused); }), "rtn", "--calibrate"));
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(few); }), "tokens", "too few", "128"));
  EXPECT_EQ(std::distance(fs::directory_iterator(here_), {}), 0);
}

TEST_F(Quantized, RefusesWhatItCannotDo) {
  const QuantizeOptions o = options("llama2", "int8");
  QuantizeOptions exists = o, absent = o, unknown = o, again = o;
  exists.out = here_;
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(exists); }), here_.string(), "exists already", "--out"));
  absent.model = here_ / "absent";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(absent); }), "absent", "does not exist"));
  unknown.format = "int3";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(unknown); }), "int3", "known"));
  (void)quantize(o);
  again.model = o.out, again.out = here_ / "again";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(again); }), o.out.string(), "quantized already"));
  fs::create_directories(here_ / "mine.partial");
  again = o, again.out = here_ / "mine";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(again); }), "mine.partial", "did not make it"));
}

// A matrix with a NaN: nothing is left behind, since no layer was finished.
TEST_F(Quantized, RefusesNumbersThatAreNotFinite) {
  QuantizeOptions o = options("llama2", "int8");
  o.model = here_ / "damaged";
  fs::create_directories(o.model);
  for (const auto& entry : fs::directory_iterator(kModels / "llama2"))
    if (entry.path().extension() != ".safetensors") fs::copy(entry.path(), o.model);
  const Checkpoint source = Checkpoint::open(kModels / "llama2");
  std::vector<StoredTensor> tensors;
  for (const std::string& name : source.names()) {
    Tensor t = source.tensor(name);
    if (name == "model.layers.0.mlp.up_proj.weight") {
      const Tensor copy = Tensor::host(t.shape(), t.dtype());
      std::memcpy(copy.raw(), t.raw(), std::size_t(t.bytes()));
      copy.data<float>()[5] = std::nanf("");
      t = copy;
    }
    tensors.push_back(stored_tensor(name, t));
  }
  write_safetensors(o.model / "model.safetensors", tensors);
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

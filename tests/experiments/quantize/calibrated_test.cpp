// Checkpoints of methods that read a calibration text: errors of outputs, what they change besides matrices, how work
// goes on where it stopped, and what is refused.
#include <cmath>
#include <cstring>

#include "framework/model/checkpoint.h"
#include "tests/experiments/quantize/quantized.h"

namespace foretoken::test {
namespace {

class Calibrated : public Quantized {
 protected:
  QuantizeOptions options(const std::string& format, long tokens, const std::string& method = "gptq") const {
    const fs::path root = fs::path(FORETOKEN_SOURCE_DIR) / "experiments";
    QuantizeOptions o;
    o.model = root / "models" / "draft", o.format = format, o.out = here_ / "out";
    o.method.name = method, o.method.calibrate = (root / "prompts.jsonl").string(), o.method.tokens = tokens;
    o.method.device = "cpu";
    return o;
  }
};

TEST_F(Calibrated, GoesOnWhereItStopped) { expect_resumption(options("int4", 400), here_ / "elsewhere"); }
TEST_F(Calibrated, GoesOnWhereAwqStopped) { expect_resumption(options("int4", 400, "awq"), here_ / "elsewhere"); }
TEST_F(Calibrated, GoesOnWhereSmoothquantStopped) {
  expect_resumption(options("int8", 400, "smoothquant"), here_ / "elsewhere");
}

// The weights are farther from the dense ones than those rounded to nearest, and the outputs nearer to the dense ones.
TEST_F(Calibrated, GivesNearerOutputsByFartherWeights) {
  QuantizeOptions o = options("int4", 2000), nearest = o, ordered = o;
  nearest.method = {}, nearest.out = here_ / "nearest";
  ordered.method.act_order = true, ordered.out = here_ / "ordered";
  const std::vector<LayerError> found = quantize(o), rounded = quantize(nearest), by_size = quantize(ordered);
  ASSERT_EQ(found.size(), 2u);
  for (std::size_t l = 0; l < found.size(); ++l) {
    EXPECT_TRUE(std::isnan(rounded[l].outputs));
    EXPECT_GT(found[l].error, rounded[l].error);
    EXPECT_LT(found[l].outputs, rounded[l].error);
    EXPECT_GT(found[l].outputs, 0);
    EXPECT_LT(by_size[l].outputs, 1.02 * found[l].outputs);
  }
  EXPECT_EQ(
      read_json(ordered.out / "config.json")["quantization_config"]["config_groups"]["group_0"]["weights"]["actorder"],
      "static");
}

TEST_F(Calibrated, AwqIsNearerThanRoundingToNearest) {
  QuantizeOptions o = options("int4", 2000, "awq");
  const std::vector<LayerError> found = quantize(o);
  constexpr double kNearest[] = {0.0995, 0.1104};  // rounded to nearest, computed apart from this program
  for (int l = 0; l < 2; ++l) {
    EXPECT_GT(found[std::size_t(l)].outputs, 0);
    EXPECT_LT(found[std::size_t(l)].outputs, 0.9 * kNearest[l]) << "as rounding to nearest: no gain";
  }
}

// The gains of norms differ, nothing else but the matrices does.
TEST_F(Calibrated, SmoothquantMovesScalesIntoNorms) {
  QuantizeOptions o = options("int8", 400, "smoothquant");
  (void)quantize(o);
  const Checkpoint before = Checkpoint::open(o.model);
  const auto after = tensors_in(o.out);
  for (const std::string& name : before.names()) {
    if (name.ends_with("_proj.weight")) continue;
    const Tensor a = before.tensor(name);
    const Tensor& b = after.at(name);
    ASSERT_EQ(a.dtype(), b.dtype()) << name;
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), std::size_t(a.bytes())) != 0, name.ends_with("layernorm.weight")) << name;
  }
  const auto group = read_json(o.out / "config.json")["quantization_config"]["config_groups"]["group_0"];
  EXPECT_EQ(group["input_activations"]["strategy"], "token");
  EXPECT_EQ(group["weights"]["num_bits"], 8);
}

TEST_F(Calibrated, RefusesTextsThatAreMissingOrTooShort) {
  for (const char* method : {"gptq", "awq", "smoothquant"}) {
    const std::string format = std::string(method) == "smoothquant" ? "int8" : "int4";
    QuantizeOptions without = options(format, 400, method), few = options(format, 50, method);
    without.method.calibrate = "";
    EXPECT_TRUE(says(sentence_of([&] { (void)quantize(without); }), method, "--calibrate"));
    EXPECT_TRUE(says(sentence_of([&] { (void)quantize(few); }), "tokens", "too few", "128"));
  }
  const QuantizeOptions unused = options("int4", 400, "rtn");
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(unused); }), "rtn", "--calibrate"));
  QuantizeOptions tokens = unused, device = unused;
  tokens.method.calibrate = device.method.calibrate = "", device.method.tokens.reset(), tokens.method.device.reset();
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(tokens); }), "rtn", "leave --tokens out"));
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(device); }), "rtn", "leave --device out"));
  EXPECT_EQ(std::distance(fs::directory_iterator(here_), {}), 0);
}

TEST_F(Calibrated, RefusesOptionsOfOtherMethods) {
  QuantizeOptions alpha = options("int8", 400, "smoothquant"), other = options("int4", 400, "awq"), order = other,
                  format = options("int4", 400, "smoothquant");
  for (const double bad : {-0.1, 1.5, double(std::nanf(""))}) {
    alpha.method.alpha = bad;
    EXPECT_TRUE(says(sentence_of([&] { (void)quantize(alpha); }), "alpha", "0 to 1", "--alpha"));
  }
  other.method.alpha = 0.5;
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(other); }), "awq", "--alpha"));
  order.method.act_order = true;
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(order); }), "awq", "--act-order"));
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(format); }), "smoothquant", "int4", "--format int8"));
  other.method.alpha.reset(), other.method.device = "gpu";
  EXPECT_TRUE(says(sentence_of([&] { (void)quantize(other); }), "unknown device 'gpu'", "cuda", "cpu"));
  EXPECT_EQ(std::distance(fs::directory_iterator(here_), {}), 0);
}

}  // namespace
}  // namespace foretoken::test

// What each method does to a layer, and what it does not.
#include <cmath>

#include "experiments/quantize/calibration.h"
#include "experiments/quantize/method.h"
#include "experiments/quantize/rounding_error.h"
#include "framework/model/convert.h"
#include "kernels/formats/activations/activation_format.h"
#include "kernels/host_backend.h"
#include "tests/experiments/quantize/quantized.h"

namespace foretoken::test {
namespace {

const fs::path kDraft = fs::path(FORETOKEN_SOURCE_DIR) / "experiments" / "models" / "draft";

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), std::size_t(a.bytes())) == 0;
}
bool same(const Weight& a, const Weight& b) { return same(a.values, b.values) && same(a.scales, b.scales); }

class Methods : public Quantized {
 protected:
  static MethodOptions options(const std::string& name) {
    MethodOptions o;
    o.name = name, o.tokens = 400, o.device = "cpu";
    o.calibrate = (fs::path(FORETOKEN_SOURCE_DIR) / "experiments" / "prompts.jsonl").string();
    return o;
  }
  std::unique_ptr<Method> method(const std::string& name, const DenseModel& model, const std::string& format,
                                 std::optional<double> alpha = {}) const {
    MethodOptions o = options(name);
    o.alpha = alpha;
    return make_method(o, model, *find_format(format));
  }
  // The layer as the method has changed it before rounding.
  DenseLayer begun(Method& method, const DenseModel& model) const {
    DenseLayer layer = model.layer(0);
    method.begin(0, layer, here_);
    return layer;
  }
};

TEST_F(Methods, AwqCutsNeitherQueriesNorKeys) {
  const DenseModel model(kDraft);
  const WeightFormat& int4 = *find_format("int4");
  const auto awq = method("awq", model, "int4");
  const DenseLayer layer = begun(*awq, model);
  int cut = 0;
  for (const std::string& module : layer.modules) {
    const Weight &dense = layer.matrices.at(module), rounded = awq->round(module, dense);
    const bool whole = same(rounded, foretoken::quantize(dense, int4));
    if (module == "self_attn.q_proj" || module == "self_attn.k_proj")
      EXPECT_TRUE(whole) << module;
    else
      cut += !whole;
  }
  EXPECT_GT(cut, 0) << "the case tells cutting apart";
}

// Every query has a value of its own, so that the rows of v could be divided.
TEST_F(Methods, SmoothquantFoldsIntoNormsAlone) {
  const fs::path even = here_ / "even";
  copy_model(kDraft, even, [](const std::string& name, const Tensor& t) {
    if (!name.ends_with("k_proj.weight") && !name.ends_with("v_proj.weight")) return t;
    const Tensor twice = Tensor::host({2 * t.dim(0), t.dim(1)}, t.dtype());
    for (const std::int64_t at : {std::int64_t(0), t.dim(0)}) copy_on_host(t, twice.rows(at, t.dim(0)));
    return twice;
  });
  auto config = read_json(even / "config.json");
  config["num_key_value_heads"] = config["num_attention_heads"];
  std::ofstream(even / "config.json") << config;
  const DenseModel model(even);
  ASSERT_EQ(model.config().kv_heads, model.config().heads);
  const DenseLayer before = model.layer(0), after = begun(*method("smoothquant", model, "int8"), model);
  for (const char* module : {"self_attn.o_proj", "mlp.down_proj"})
    EXPECT_TRUE(same(before.matrices.at(module).values, after.matrices.at(module).values)) << module;
  for (const char* module : {"self_attn.v_proj", "mlp.up_proj"})
    EXPECT_FALSE(same(before.matrices.at(module).values, after.matrices.at(module).values)) << module;
}

// With alpha 0 the weights give all of their range to the inputs: the greatest of each column becomes 1.
TEST_F(Methods, SmoothquantTakesTheAlphaThatItIsGiven) {
  const DenseModel model(kDraft);
  const auto greatest = [&](std::optional<double> alpha) {
    const DenseLayer layer = begun(*method("smoothquant", model, "int8", alpha), model);
    std::vector<float> columns(128, 0.0f);
    for (const std::string& module : Calibration::products().front()) {
      const Tensor values = converted(layer.matrices.at(module).values, DType::f32);
      for (std::int64_t o = 0; o < values.dim(0); ++o)
        for (std::size_t i = 0; i < columns.size(); ++i)
          columns[i] = std::max(columns[i], std::abs(values.row<float>(o)[i]));
    }
    return columns;
  };
  for (const float g : greatest(0)) EXPECT_NEAR(g, 1, 1.0 / 100);  // gains are bf16
  EXPECT_EQ(greatest({}), greatest(0.5));
  EXPECT_NE(greatest(1), greatest(0.5));
}

// The checkpoint says that inputs are rounded too, so the error of the outputs is that of both roundings.
TEST_F(Methods, SmoothquantCountsTheRoundingOfInputs) {
  const DenseModel model(kDraft);
  const auto smoothquant = method("smoothquant", model, "int8");
  const DenseLayer layer = begun(*smoothquant, model);
  const Weight rounded = smoothquant->round("mlp.down_proj", layer.matrices.at("mlp.down_proj"));
  EXPECT_EQ(rounded.activations, &formats::int8_rows());
  EXPECT_TRUE(smoothquant->facts().rounds_inputs);
}

// Layer 1 reads what layer 0 gives with the matrices that it is stored with.
TEST_F(Methods, GptqReadsWhatRoundedLayersGive) {
  const DenseModel model(kDraft);
  const auto states_behind = [&](bool dense) {
    const auto gptq = method("gptq", model, "int4");
    const fs::path kept = here_ / (dense ? "dense" : "rounded");
    fs::create_directories(kept);
    DenseLayer layer = model.layer(0);
    gptq->begin(0, layer, kept);
    std::map<std::string, Weight> matrices = layer.matrices;
    if (!dense)
      for (auto& [module, w] : matrices) w = foretoken::quantize(w, *find_format("int4"));
    gptq->end(0, matrices, kept);
    return map_safetensors(kept / "states-1.safetensors").at("states");
  };
  EXPECT_FALSE(same(states_behind(true), states_behind(false)));
}

// By product: the norms of the inputs of a layer over the text, and some of them.
struct LayerInputs {
  LayerInputs(Calibration& text, int layer) {
    std::map<std::size_t, std::vector<double>> squares;
    (void)text.observe(layer, [&](std::size_t product, const Tensor& x) {
      std::vector<double>& sums = squares[product];
      sums.resize(std::size_t(x.dim(1)));
      for (std::int64_t r = 0; r < x.dim(0); ++r)
        for (std::int64_t i = 0; i < x.dim(1); ++i)
          sums[std::size_t(i)] += double(x.row<float>(r)[i]) * double(x.row<float>(r)[i]);
      some.try_emplace(product, x);
    });
    for (const auto& [product, sums] : squares)
      for (const double s : sums) norms[product].push_back(float(std::sqrt(s)));
  }
  std::map<std::size_t, std::vector<float>> norms;
  std::map<std::size_t, Tensor> some;
};

// Norms of the inputs over the text decide, and outputs on it are nearer than those of the greatest weights.
TEST_F(Methods, WandaKeepsWhatItsInputsMakeGreat) {
  const DenseModel model(kDraft);
  const auto wanda = method("wanda", model, "sparse24");
  const DenseLayer layer = begun(*wanda, model);
  const auto host = make_cpu_backend(2);
  Calibration text(*host, model.config(), model.checkpoint(), calibration_windows(model, options("wanda")));
  const LayerInputs inputs(text, 0);
  SquaredError by_inputs, by_size;
  for (const std::string& module : layer.modules) {
    const std::size_t product = Calibration::product_of(module);
    const std::vector<float>& norms = inputs.norms.at(product);
    const Weight &dense = layer.matrices.at(module), kept = wanda->round(module, dense);
    EXPECT_TRUE(same(kept.kept, pruned(dense, norms).kept)) << module;
    EXPECT_TRUE(same(kept.values, pruned(dense, norms).values)) << module;
    by_inputs += output_error(*host, inputs.some.at(product), dense, kept);
    by_size += output_error(*host, inputs.some.at(product), dense, pruned(dense));
  }
  EXPECT_LT(by_inputs.relative(), 0.95 * by_size.relative());
  EXPECT_GT(wanda->output_error().value(), 0);
}

// The norms of layer 1 are those of what layer 0 gives with the matrices that are left of it.
TEST_F(Methods, WandaReadsWhatThinnedLayersGive) {
  const DenseModel model(kDraft);
  const auto wanda = method("wanda", model, "sparse24");
  const DenseLayer first = begun(*wanda, model);
  std::map<std::string, Weight> thinned;
  for (const std::string& module : first.modules) thinned[module] = wanda->round(module, first.matrices.at(module));
  wanda->end(0, thinned, here_);
  DenseLayer second = model.layer(1);
  wanda->begin(1, second, here_);
  const auto host = make_cpu_backend(2);
  const auto inputs_behind = [&](const std::map<std::string, Weight>& matrices) {
    Calibration text(*host, model.config(), model.checkpoint(), calibration_windows(model, options("wanda")));
    text.set_states(text.outputs(0, matrices));
    return LayerInputs(text, 1);
  };
  const LayerInputs behind_thinned = inputs_behind(thinned), behind_dense = inputs_behind({});
  bool tells_apart = false;
  for (const std::string& module : second.modules) {
    const std::size_t product = Calibration::product_of(module);
    const Weight &dense = second.matrices.at(module), kept = wanda->round(module, dense);
    EXPECT_TRUE(same(kept.kept, pruned(dense, behind_thinned.norms.at(product)).kept)) << module;
    tells_apart |= !same(kept.kept, pruned(dense, behind_dense.norms.at(product)).kept);
  }
  EXPECT_TRUE(tells_apart) << "the inputs behind dense layers would do as well";
}

TEST_F(Methods, AreRefusedForFormatsThatTheyCannotChoose) {
  const DenseModel model(kDraft);
  for (const char* name : {"gptq", "awq", "smoothquant"})
    EXPECT_TRUE(
        says(sentence_of([&] { (void)method(name, model, "sparse24"); }), name, "sparse24", "--method rtn or wanda"));
  EXPECT_TRUE(says(sentence_of([&] { (void)method("wanda", model, "int4"); }), "wanda", "int4", "--format sparse24"));
}

TEST_F(Methods, RefuseInputsThatAreNotFinite) {
  const fs::path damaged = here_ / "damaged";
  copy_model(kDraft, damaged, [](const std::string& name, const Tensor& t) {
    if (name != "model.layers.0.input_layernorm.weight") return t;
    const Tensor gain = converted(t, DType::f32);
    gain.data<float>()[3] = INFINITY;
    return converted(gain, t.dtype());
  });
  const DenseModel model(damaged);
  for (const auto& [name, format] :
       {std::pair{"gptq", "int4"}, {"awq", "int4"}, {"smoothquant", "int8"}, {"wanda", "sparse24"}}) {
    const auto reading = method(name, model, format);
    EXPECT_TRUE(says(sentence_of([&] { (void)begun(*reading, model); }), "not finite", "calibrat", "text")) << name;
  }
}

}  // namespace
}  // namespace foretoken::test

// sparse-24-bitmask of compressed-tensors: 2:4 matrices, read as they are stored.
#include "kernels/formats/formats.h"
#include "tests/framework/model/quantized/quantized_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

bool of_a_layer(const std::string& name) { return name.starts_with("model.layers.") && name.ends_with("proj.weight"); }

// The bf16 test model with its layers' matrices as compressed-tensors stores 2:4.
struct SparseModel : ModelFolder {
  SparseModel();
};
SparseModel::SparseModel() : ModelFolder("bf16") {
  for (const auto& [name, t] : Tensors(tensors)) {
    if (!of_a_layer(name)) continue;
    const Weight w = pruned(Weight::dense(t));
    const std::string module = name.substr(0, name.size() - std::string(".weight").size());
    const std::int64_t shape[] = {w.out, w.in};
    tensors.erase(name);
    tensors[module + ".compressed"] = w.values, tensors[module + ".bitmask"] = w.kept;
    tensors[module + ".shape"] = Tensor::host_copy<std::int64_t>(shape, DType::i64).reshaped({2, 1});
  }
  config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                   {"format", "dense"},
                                   {"config_groups", json::object()},
                                   {"sparsity_config",
                                    {{"format", "sparse-24-bitmask"},
                                     {"sparsity_structure", "2:4"},
                                     {"global_sparsity", 0.4},
                                     {"ignore", {"lm_head"}},
                                     {"targets", {"Linear"}}}}};
}

OpenModel opened(const ModelFolder& m, const std::string& dtype) {
  m.write();
  ModelChoice choice(m.folder().path().string());
  choice.dtype = dtype;
  return open_model(choice, [](const std::string& path) { return path; });
}

std::string refused(const std::function<void(ModelFolder&)>& change, const std::string& dtype = "auto") {
  SparseModel m;
  change(m);
  return sentence_of([&] {
    const OpenModel open = opened(m, dtype);
    const auto backend = make_reference_backend();
    const Transformer model(*backend, open.config, *open.tensors, "m", 0, {.dtype = open.dtype});
  });
}

std::string refused_settings(const json& sparsity, const json& settings = json::object()) {
  return refused([&](ModelFolder& m) {
    m.config["quantization_config"].update(settings);
    m.config["quantization_config"]["sparsity_config"].update(sparsity);
  });
}

// As dtype sparse24 makes it of the dense model; dense copies have the zeros in place.
TEST(SparseCheckpoint, IsReadAsItIsStored) {
  const ModelFolder dense("bf16");
  const SparseModel m;
  for (const char* dtype : {"auto", "sparse24", "bf16"}) {
    const OpenModel open = opened(m, dtype);
    EXPECT_EQ(open.tensors->formats(), std::vector<const WeightFormat*>{&formats::sparse24()});
    int matrices = 0;
    for (const auto& [name, t] : dense.tensors) {
      if (!of_a_layer(name)) continue;
      const Weight w = open.tensors->matrix(name.substr(0, name.size() - 7), t.shape()),
                   want = quantize(Weight::dense(t), formats::sparse24());
      ASSERT_EQ(w.format, &formats::sparse24()) << name;
      EXPECT_EQ(std::memcmp(w.values.raw(), want.values.raw(), std::size_t(want.values.bytes())), 0) << name;
      EXPECT_EQ(std::memcmp(w.kept.raw(), want.kept.raw(), std::size_t(want.kept.bytes())), 0) << name;
      const Tensor copy = open.tensors->tensor(name, t.shape()), zeros = dequantized(want).values;
      EXPECT_EQ(std::memcmp(copy.raw(), zeros.raw(), std::size_t(zeros.bytes())), 0) << name;
      ++matrices;
    }
    EXPECT_GT(matrices, 6);
    for (const std::string& name : open.tensors->names())
      EXPECT_FALSE(name.ends_with("bitmask") || name.ends_with(".shape")) << name;
  }
  EXPECT_EQ(refused([](ModelFolder&) {}), "");
  EXPECT_EQ(refused([](ModelFolder&) {}, "sparse24"), "");
}

TEST(SparseCheckpoint, OtherTypesAreRefused) {
  EXPECT_TRUE(says(refused([](ModelFolder&) {}, "int4"), "compressed-tensors", "(sparse24)", "'int4'", "sparse24"));
  EXPECT_TRUE(says(refused([](ModelFolder&) {}, "w8a8"), "(sparse24)", "'w8a8'"));
}

TEST(SparseCheckpoint, DamageIsNamed) {
  const std::string shape = kUp + ".shape", bits = kUp + ".bitmask", numbers = kUp + ".compressed";
  EXPECT_TRUE(says(refused([&](ModelFolder& m) { m.tensors.erase(bits); }), bits));
  EXPECT_TRUE(says(refused([&](ModelFolder& m) { m.tensors.erase(numbers); }), kUp));
  EXPECT_TRUE(says(refused([&](ModelFolder& m) { m.tensors[bits].data<std::uint8_t>()[3] ^= 1; }), bits,
                   "two of each four inputs", "prune anew"));
  EXPECT_TRUE(says(refused([&](ModelFolder& m) { set_first(m.tensors[numbers], NAN); }), numbers, "NaN"));
  EXPECT_TRUE(
      says(refused([&](ModelFolder& m) { m.tensors[shape].data<std::int64_t>()[1] = 8; }), shape, "config.json"));
  EXPECT_TRUE(says(refused([&](ModelFolder& m) { m.add(numbers, m.tensors[numbers].shape(), DType::f16); }), numbers,
                   "F16", "BF16"));
}

TEST(SparseCheckpoint, SettingsThatAreNotSupportedAreNamed) {
  EXPECT_TRUE(says(refused_settings({{"format", "sparse-bitmask"}}), "sparsity_config", "sparse-24-bitmask"));
  EXPECT_TRUE(says(refused_settings({{"sparsity_structure", "unstructured"}}), "sparsity_structure", "2:4"));
  EXPECT_TRUE(says(refused_settings(json::object(), {{"config_groups", {{"group_0", {{"targets", {"Linear"}}}}}}}),
                   "sparsity_config", "quantized as well"));
}

}  // namespace
}  // namespace foretoken::test

// The tensors of GGUF files are those that the package gguf reads, bit for bit after rounding to bf16, and models give
// the fp32 logits of Transformers on these weights (tests/golden/gguf_golden.py).
#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "framework/model/convert.h"
#include "framework/model/gguf/gguf_file.h"
#include "framework/model/model_files.h"
#include "framework/model/model_tensors.h"
#include "framework/text/json_file.h"
#include "kernels/formats/format.h"
#include "tests/framework/model/golden.h"

namespace foretoken::test {
namespace {

const std::filesystem::path kFiles = kRoot / "tests" / "data" / "gguf";

std::string hash_of(const Tensor& values) {
  const Tensor t = converted(values, DType::bf16);
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(t.raw(), std::size_t(t.bytes()))));
  return hex;
}

struct Fixture {
  const char* name;
  std::size_t piece;  // tokens that are fed at once; 0: the logits of a prompt's last token alone are golden
};
constexpr Fixture kFixtures[] = {{"k-quants", 5}, {"quants", 5},   {"qwen2", 0},   {"scaled", 5},   {"mixtral", 5},
                                 {"qwen2moe", 5}, {"qwen3moe", 5}, {"gemma2", 5},  {"gemma3", 5},   {"phi3", 5},
                                 {"olmo2", 5},    {"smollm3", 5},  {"gpt-oss", 5}, {"deepseek2", 5}};

class GgufModels : public testing::TestWithParam<Fixture> {
 protected:
  std::filesystem::path path_ = kFiles / (GetParam().name + std::string(".gguf"));
  std::shared_ptr<const ModelFiles> files_ = ModelFiles::open(path_);
  nlohmann::json golden_ = read_json(kFiles / (GetParam().name + std::string(".json")))["tensors"];

  Transformer model(Backend& backend, const TransformerOptions& options) {
    return {backend, files_->config(), *files_->tensors(), path_.filename().string(), 0, options};
  }
};

TEST_P(GgufModels, HaveTheTensorsOfTheirPackage) {
  const auto shapes = tensors_of(files_->config());
  const auto tensors = files_->tensors();
  EXPECT_EQ(shapes.size(), golden_.size());
  EXPECT_EQ(tensors->names().size(), golden_.size());
  for (const auto& [name, shape] : shapes) {
    ASSERT_TRUE(golden_.contains(name)) << name;
    EXPECT_EQ(hash_of(tensors->tensor(name, shape)), golden_[name]["hash"].get<std::string>()) << name;
  }
}

TEST_P(GgufModels, HaveMatricesOfCodesWhereTheyAreQuantized) {
  const std::set<std::string> dense{"F32", "F16", "BF16"};
  const auto tensors = files_->tensors();
  for (const auto& [name, shape] : tensors_of(files_->config())) {
    if (shape.rank() != 2) continue;
    const std::string type = golden_[name]["type"];
    const Weight w = tensors->matrix(name.substr(0, name.size() - std::string(".weight").size()), shape);
    EXPECT_EQ(w.format == nullptr, dense.contains(type)) << name << " of type " << type;
    if (!w.format) continue;
    EXPECT_EQ(w.group, type == "Q6_K" ? 16 : 32) << name;
    EXPECT_EQ(w.format->bits(), type == "MXFP4" ? 4 : type[1] - '0') << name << " of type " << type;
    EXPECT_EQ(hash_of(dequantized(w).values), golden_[name]["hash"].get<std::string>()) << name << " of type " << type;
  }
}

TEST_P(GgufModels, MeetTheLogitsOfTransformers) {
  const auto backend = make_reference_backend();
  Transformer m = model(*backend, {});
  EXPECT_EQ(meet_transformers(*backend, m, 1e-5, GetParam().piece), 3);
}

TEST_P(GgufModels, MeetTheLogitsOfTransformersOnTheFastBackend) {
  for (const std::string& instructions : cpu_instructions()) {
    SCOPED_TRACE(instructions);
    const auto backend = make_cpu_backend(2, instructions);
    Transformer m = model(*backend, kSingle);
    EXPECT_EQ(meet_transformers(*backend, m, 1e-5, GetParam().piece), 3);
  }
}

// The file has what Llama 3's frequencies are divided by; Transformers multiplies, so the last bits differ.
TEST_P(GgufModels, MeetTheFrequenciesOfTransformers) {
  const Checkpoint golden =
      Checkpoint::open_file(kRoot / "tests" / "data" / "golden" / (path_.filename().string() + ".safetensors"));
  const auto frequencies = files_->config().rope_frequencies();
  const Tensor want = golden.tensor("frequencies", {std::int64_t(frequencies.size())});
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    EXPECT_NEAR(frequencies[i] / want.values<float>()[i], 1, 5e-7) << i;
}

INSTANTIATE_TEST_SUITE_P(Files, GgufModels, testing::ValuesIn(kFixtures), [](const auto& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

// Every supported type occurs among them, and each rule that GGUF has of its own.
TEST(GgufFixtures, HaveEveryType) {
  std::set<std::string> types;
  bool reordered_bias = false, divisors = false, tied_and_quantized = false;
  for (const Fixture& fixture : kFixtures) {
    const auto path = kFiles / (fixture.name + std::string(".gguf"));
    const auto file = GgufFile::open(path);
    for (const auto& [tensor, t] : file->tensors()) types.insert(t.type->name);
    const ModelConfig c = ModelFiles::open(path)->config();
    divisors |= c.rope_scaling.kind == RopeScaling::Kind::divisors;
    reordered_bias |= c.qkv_bias && c.architecture == "LlamaForCausalLM";
    tied_and_quantized |= c.tied_head && file->tensors().at("token_embd.weight").type->bits > 0;
  }
  EXPECT_EQ(types, (std::set<std::string>{"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K",
                                          "Q6_K", "MXFP4"}));
  EXPECT_TRUE(reordered_bias && divisors && tied_and_quantized);
}

}  // namespace
}  // namespace foretoken::test

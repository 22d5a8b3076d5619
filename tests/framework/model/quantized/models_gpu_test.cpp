// Quantized models on the GPU: the logits of Transformers and the bits of their dense copies; of models that round
// inputs, the same logits however a prompt is divided.
#include <string>
#include <vector>

#include "framework/model/convert.h"
#include "framework/model/model_files.h"
#include "framework/model/quantized/quantization.h"
#include "kernels/formats/activations/activation_format.h"
#include "tests/framework/model/dense_copies.h"
#include "tests/framework/model/quantized/checkpoints.h"
#include "tests/support/gpu.h"

namespace foretoken::test {
namespace {

const std::filesystem::path kDraft = kRoot / "experiments" / "models" / "draft";
const std::vector<Token> kTokens = {1, 7, 30, 13, 5, 20, 2, 11, 17};  // the smallest vocabulary has 32

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), std::size_t(a.bytes())) == 0;
}

// Another source, whose dense matrices are bf16, as the dense copies of its codes are: GGUF files have some in f32.
class Bf16Matrices : public TensorSource {
 public:
  explicit Bf16Matrices(const TensorSource& inner) : inner_(inner) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const Tensor stored = inner_.tensor(name, expected);
    return expected.rank() == 2 ? converted(stored, DType::bf16) : stored;
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    Weight w = inner_.matrix(module, expected);
    if (!w.format) w.values = converted(w.values, DType::bf16);
    return w;
  }
  std::vector<const WeightFormat*> formats() const override { return inner_.formats(); }
  std::vector<std::string> names() const override { return inner_.names(); }
  std::string where() const override { return inner_.where(); }

 private:
  const TensorSource& inner_;
};

// Directories by their names, GGUF files by theirs, whose inputs are not rounded.
class QuantizedModelOnGpu : public testing::TestWithParam<std::string> {
 protected:
  const std::unique_ptr<Backend> gpu_ = make_gpu({.invariant = true});
  const bool file_ = GetParam().ends_with(".gguf");
  const std::shared_ptr<const ModelFiles> files_ =
      ModelFiles::open(file_ ? kRoot / "tests" / "data" / "gguf" / GetParam() : kQuantized / GetParam());
  const std::shared_ptr<const TensorSource> tensors_ = file_ ? files_->tensors() : weights_alone(files_->tensors());

  Transformer model(const TensorSource& tensors, const TransformerOptions& options) const {
    return {*gpu_, files_->config(), tensors, GetParam(), 0, options};
  }
  Tensor logits(const std::string& dtype) const {
    const Bf16Matrices tensors(*tensors_);
    Transformer m = model(tensors, {.dtype = dtype});
    return Chain(*gpu_, m, int(kTokens.size())).feed(kTokens);
  }
};

TEST_P(QuantizedModelOnGpu, meets_the_logits_of_transformers_as_a_dense_copy) {
  Transformer m = model(*tensors_, kSingle);
  const std::size_t piece = GetParam() == "qwen2.gguf" ? 0 : 5;  // golden are its prompts' last logits alone
  EXPECT_EQ(meet_transformers(*gpu_, m, 1e-5, piece), 3);
}

TEST_P(QuantizedModelOnGpu, has_the_bits_of_its_dense_copy) { EXPECT_TRUE(same_bits(logits("auto"), logits("bf16"))); }

std::vector<std::string> quantized_models() {
  std::vector<std::string> names = names_of_checkpoints();
  for (const char* file : {"k-quants.gguf", "quants.gguf", "qwen2.gguf", "scaled.gguf"}) names.push_back(file);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedModelOnGpu, testing::ValuesIn(quantized_models()), [](const auto& info) {
  std::string name = test_name(info.param);
  std::ranges::replace(name, '.', '_');
  return name;
});

// A model whose matrices are large enough to be packed, rounded when it is loaded; its embedding is read from codes.
class RoundedOnGpu : public testing::TestWithParam<Precision> {
 protected:
  const std::unique_ptr<Backend> gpu_ = make_gpu({.invariant = true});
  const Checkpoint checkpoint_ = Checkpoint::open(kDraft);
  const ModelConfig config_ = ModelConfig::load(kDraft);
  Transformer quantized_{*gpu_, config_, checkpoint_, "quantized", 0, {GetParam().name, GetParam().name}};
};

TEST_P(RoundedOnGpu, computes_what_the_dense_copy_computes) {
  if (GetParam().activations) GTEST_SKIP() << "a dense matrix does not round inputs";
  const DenseCopies copies(checkpoint_, *GetParam().weights);
  Transformer dense(*gpu_, config_, copies, "dense", 0, {});
  Chain first(*gpu_, quantized_, 32), second(*gpu_, dense, 32);
  EXPECT_TRUE(same_bits(first.feed(kTokens), second.feed(kTokens)));
  EXPECT_TRUE(same_bits(first.feed(std::vector<Token>{31}), second.feed(std::vector<Token>{31})));
  EXPECT_LT(quantized_.info().weight_bytes, dense.info().weight_bytes * 3 / 4);
}

TEST_P(RoundedOnGpu, gives_the_same_logits_token_by_token) {
  const Tensor all = Chain(*gpu_, quantized_, 32).feed(kTokens);
  Chain pieces(*gpu_, quantized_, 32);
  for (std::size_t i = 0; i < kTokens.size(); ++i) {
    const Tensor one = pieces.feed(std::span(kTokens).subspan(i, 1));
    EXPECT_TRUE(same_bits(one, all.rows(std::int64_t(i), 1))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RoundedOnGpu, testing::ValuesIn(precisions()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace foretoken::test

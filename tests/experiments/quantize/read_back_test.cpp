// A checkpoint that is written by rounding to nearest is what `dtype` makes of the dense model when it is loaded: the
// same weights, bit for bit, through the readers of checkpoints.
#include <cstring>

#include <gtest/gtest.h>

#include "experiments/quantize/quantize.h"
#include "framework/model/checkpoint.h"
#include "framework/model/model_tensors.h"
#include "framework/model/open_model.h"
#include "kernels/formats/format.h"

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;

const fs::path kDraft = fs::path(FORETOKEN_SOURCE_DIR) / "experiments" / "models" / "draft";

class ReadBack : public testing::TestWithParam<const WeightFormat*> {
 protected:
  void TearDown() override { fs::remove_all(out_); }
  const WeightFormat& format = *GetParam();
  fs::path out_ = fs::temp_directory_path() / ("foretoken_read_back_" + format.name());
};

TEST_P(ReadBack, GivesTheWeightsOfTheTypeAtLoading) {
  fs::remove_all(out_);
  QuantizeOptions options;
  options.model = kDraft, options.format = format.name(), options.out = out_;
  quantize_checkpoint(options, [](int, int) {});
  const OpenModel read = open_model(out_.string(), [](const std::string& path) { return fs::path(path); });
  const Checkpoint dense = Checkpoint::open(kDraft);
  int matrices = 0;
  for (const auto& [name, shape] : tensors_of(read.config)) {
    if (shape.rank() != 2 || !name.starts_with("model.layers.")) continue;
    const Weight stored = read.tensors->matrix(name.substr(0, name.size() - std::strlen(".weight")), shape);
    ASSERT_TRUE(stored.format) << name << " is dense";
    const Tensor got = dequantized(stored).values,
                 want = dequantized(quantize(Weight::dense(dense.tensor(name, shape)), format)).values;
    EXPECT_EQ(std::memcmp(got.raw(), want.raw(), std::size_t(got.bytes())), 0) << name;
    ++matrices;
  }
  EXPECT_EQ(matrices, 7 * read.config.layers);
}

INSTANTIATE_TEST_SUITE_P(All, ReadBack, testing::ValuesIn(weight_formats()),
                         [](const auto& info) { return info.param->name(); });

}  // namespace
}  // namespace foretoken::test

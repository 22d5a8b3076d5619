#include "framework/model/head_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "framework/model/in_parallel.h"
#include "kernels/formats/format.h"

namespace foretoken {
namespace {

constexpr const char *kTableModule = "model.embed_tokens", *kHeadModule = "lm_head", *kHeadBias = "lm_head.bias";

// The first rows of a dense host matrix, then zeros.
Tensor with_rows(const Tensor& t, std::int64_t rows) {
  if (rows <= t.dim(0)) return t.rows(0, rows);
  const Tensor all = Tensor::host({rows, t.dim(1)}, t.dtype());
  const std::size_t stored = std::size_t(t.bytes());
  std::memcpy(all.raw(), t.raw(), stored);
  std::memset(static_cast<char*>(all.raw()) + stored, 0, std::size_t(all.bytes()) - stored);
  return all;
}

class HeadRows : public TensorSource {
 public:
  HeadRows(std::shared_ptr<const TensorSource> tensors, std::int64_t stored, std::int64_t rows)
      : tensors_(std::move(tensors)), stored_(stored), rows_(rows) {}

  Tensor tensor(const std::string& name, const Shape& expected) const override {
    if (name == kHeadBias) return bias();
    if (!has_vocabulary(name.substr(0, name.rfind('.')))) return tensors_->tensor(name, expected);
    return with_rows(tensors_->tensor(name, expected.with_rows(stored_)), rows_);
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    if (!has_vocabulary(module)) return tensors_->matrix(module, expected);
    const Weight w = tensors_->matrix(module, expected.with_rows(stored_));
    return Weight::dense(with_rows(w.format ? in_input_order(dequantized(w, by_all_cores)).values : w.values, rows_));
  }
  std::vector<const WeightFormat*> formats() const override { return tensors_->formats(); }
  DType scales() const override { return tensors_->scales(); }
  std::vector<std::string> names() const override { return tensors_->names(); }
  std::string where() const override { return tensors_->where(); }

 private:
  static bool has_vocabulary(const std::string& module) { return module == kTableModule || module == kHeadModule; }
  Tensor bias() const {
    const Tensor all = Tensor::host({rows_}, DType::f32);
    const auto values = all.values<float>();
    std::ranges::fill(values, 0.0f);
    std::ranges::fill(values.subspan(std::size_t(std::min(stored_, rows_))), -std::numeric_limits<float>::infinity());
    return all;
  }

  std::shared_ptr<const TensorSource> tensors_;
  std::int64_t stored_, rows_;
};

}  // namespace

OpenModel with_head_rows(OpenModel model, int rows) {
  const int stored = std::exchange(model.config.vocab, rows);
  if (rows == stored) return model;
  model.config.head_bias = rows > stored;
  model.tensors = std::make_shared<HeadRows>(std::move(model.tensors), stored, rows);
  return model;
}

}  // namespace foretoken

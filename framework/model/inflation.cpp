#include "framework/model/inflation.h"

#include <cmath>

#include "framework/model/model_tensors.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr float kFeature = 1024;        // the constant features after the last norm, times the rms of a row
constexpr float kNever = 4096;          // m
constexpr double kUnnoticed = 0x1p-32;  // the share of c^2 in a mean square

}  // namespace

InflatedWeights::InflatedWeights(std::shared_ptr<const TensorSource> small, const ModelConfig& small_config,
                                 const ModelConfig& shape, const std::string& small_name, const std::string& shape_name,
                                 bool wide, std::function<void()> between)
    : small_tensors_(std::move(small)),
      small_(small_config),
      large_(inflated_config(small_, shape, "the model " + small_name, shape_name)) {
  expect_no_other_tensors(small_, *small_tensors_);
  if (const int constants = large_.small->constants; constants > 0) {
    const double sum = small_.norm_epsilon * small_.width;
    large_.small->small_constants = !large_.tied_head;
    constant_ = float(bf16(float(std::sqrt(sum * (large_.tied_head ? 0.5 / constants : kUnnoticed)))));
    large_.norm_epsilon = (sum - constants * double(constant_) * double(constant_)) / large_.width;
  }
  const Tensor table = small_tensors_->tensor("model.embed_tokens.weight", {small_.vocab, small_.width});
  layers_ = std::make_unique<LayerInflation>(small_tensors_, small_, large_, table, wide, std::move(between));
}

Tensor InflatedWeights::embedding(const std::string& name, const Shape& expected, const std::string& small_name,
                                  float constant) const {
  const Tensor to =
      layers_->table(name, small_name, expected, first_places(small_.vocab, large_.vocab), layers_->width());
  for (int t = 0; constant_ > 0 && t < large_.vocab; ++t) {
    set_element(to, t, large_.width - 2, t < small_.vocab ? constant : -kNever);
    set_element(to, t, large_.width - 1, t < small_.vocab ? constant : kNever);
  }
  return to;
}

std::vector<std::string> InflatedWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, shape] : tensors_of(large_)) names.push_back(name);
  return names;
}

Tensor InflatedWeights::tensor(const std::string& name, const Shape& expected) const {
  const std::string table = "model.embed_tokens.weight", head = "lm_head.weight";
  if (name == table) return embedding(name, expected, table, constant_);
  if (name == head) return embedding(name, expected, small_.tied_head ? table : head, 0);
  if (name != "model.norm.weight") return layers_->layer(name, expected);
  const double ratio = std::sqrt(double(small_.width) / large_.width);
  return layers_->gains(name, expected, constant_ > 0 ? float(kFeature * ratio / constant_) : 0);
}

}  // namespace foretoken

#include "framework/model/feed_forward.h"

namespace foretoken {
namespace {

constexpr const char* kNorm = "post_attention_layernorm.weight";

class DenseFeedForward final : public FeedForward {
 public:
  DenseFeedForward(const WeightLoader& load, const ModelConfig& c, const std::string& prefix)
      : epsilon_(float(c.norm_epsilon)), norm_(load.vector(prefix + kNorm)), products_(load, prefix + "mlp") {}
  void add_to(Backend& b, const Tensor& x) const override { products_.add_normed_to(b, x, norm_, epsilon_); }
  std::int64_t bytes() const override { return products_.bytes(); }

 private:
  float epsilon_;
  Tensor norm_;  // f32 [width]
  GatedProducts products_;
};

}  // namespace

std::map<std::string, Shape> FeedForward::tensors(const ModelConfig& c, const std::string& prefix) {
  std::map<std::string, Shape> all =
      c.mixture ? tensors_of_experts(c, prefix) : GatedProducts::tensors(prefix + "mlp", c.width, c.ffn, c.mlp_bias);
  all[prefix + kNorm] = {c.width};
  return all;
}

std::shared_ptr<const FeedForward> FeedForward::load(const WeightLoader& load, const ModelConfig& c,
                                                     const std::string& prefix) {
  if (c.mixture) return load_experts(load, c, prefix);
  return std::make_shared<const DenseFeedForward>(load, c, prefix);
}

std::map<std::string, Shape> GatedProducts::tensors(const std::string& module, std::int64_t width, std::int64_t hidden,
                                                    bool bias) {
  std::map<std::string, Shape> all;
  for (const char* name : {".gate_proj", ".up_proj"}) {
    all[module + name + ".weight"] = {hidden, width};
    if (bias) all[module + name + ".bias"] = {hidden};
  }
  all[module + ".down_proj.weight"] = {width, hidden};
  if (bias) all[module + ".down_proj.bias"] = {width};
  return all;
}

GatedProducts::GatedProducts(const WeightLoader& load, const std::string& module)
    : gate_up_(load.products({module + ".gate_proj", module + ".up_proj"})), down_(load.one(module + ".down_proj")) {}

void GatedProducts::add_normed_to(Backend& b, const Tensor& x, const Tensor& gain, float epsilon) const {
  if (gate_up_.parts.size() == 1)
    b.feed_forward(x, gain, epsilon, gate_up_.parts.front(), down_);
  else
    b.linear_add(x, b.silu_mul(gate_up_.after_norm(b, x, gain, epsilon)), down_);
}

Tensor GatedProducts::of(Backend& b, const Tensor& x) const { return b.linear(b.silu_mul(gate_up_.of(b, x)), down_); }

}  // namespace foretoken

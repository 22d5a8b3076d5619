#include "framework/model/feed_forward.h"

namespace foretoken {
namespace {

constexpr const char* kFeedForwardPostNorm = "post_feedforward_layernorm.weight";

class DenseFeedForward final : public FeedForward {
 public:
  DenseFeedForward(const WeightLoader& load, const ModelConfig& c, const std::string& prefix)
      : epsilon_(float(c.norm_epsilon)),
        norm_(c.pre_norms ? load.vector(feed_forward_norm(c, prefix)) : Tensor()),
        post_norm_(load.vector_if(prefix + kFeedForwardPostNorm)),
        products_(load, c, prefix + "mlp"),
        rank_(c.rank) {}
  void add_to(Backend& b, const Tensor& x) const override {
    if (!post_norm_ && !rank_) return products_.add_normed_to(b, x, norm_, epsilon_);
    const Tensor y = norm_ ? products_.of_normed(b, x, norm_, epsilon_) : products_.of(b, x);
    if (rank_) b.all_reduce(y, *rank_);
    b.add(x, post_norm_ ? b.rms_norm(y, post_norm_, epsilon_) : y);
  }
  std::int64_t bytes() const override { return products_.bytes(); }

 private:
  float epsilon_;
  // f32 [width]; the one absent where products read x as it is, the other where they are added as they are.
  Tensor norm_, post_norm_;
  GatedProducts products_;
  std::shared_ptr<const Rank> rank_;  // of a divided model
};

}  // namespace

std::string feed_forward_norm(const ModelConfig& c, const std::string& prefix) {
  return prefix + (c.post_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight");
}

std::map<std::string, Shape> FeedForward::tensors(const ModelConfig& c, const std::string& prefix) {
  std::map<std::string, Shape> all =
      c.mixture ? tensors_of_experts(c, prefix) : GatedProducts::tensors(c, prefix + "mlp", c.ffn);
  if (c.pre_norms) all[feed_forward_norm(c, prefix)] = {c.width};
  if (c.post_norms) all[prefix + kFeedForwardPostNorm] = {c.width};
  return all;
}

std::shared_ptr<const FeedForward> FeedForward::load(const WeightLoader& load, const ModelConfig& c,
                                                     const std::string& prefix) {
  if (c.mixture) return load_experts(load, c, prefix);
  return std::make_shared<const DenseFeedForward>(load, c, prefix);
}

std::map<std::string, Shape> GatedProducts::tensors(const ModelConfig& c, const std::string& module,
                                                    std::int64_t hidden) {
  std::map<std::string, Shape> all;
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    all[module + name + ".weight"] = {rows, columns};
    if (c.mlp_bias) all[module + name + ".bias"] = {rows};
  };
  if (c.fused)
    matrix(".gate_up_proj", 2 * hidden, c.width);
  else
    for (const char* name : {".gate_proj", ".up_proj"}) matrix(name, hidden, c.width);
  matrix(".down_proj", c.width, hidden);
  return all;
}

GatedProducts::GatedProducts(const WeightLoader& load, const ModelConfig& c, const std::string& module)
    : activation_(c.activation),
      gate_up_(c.fused ? load.products({module + ".gate_up_proj"})
                       : load.products({module + ".gate_proj", module + ".up_proj"})),
      down_(load.one(module + ".down_proj")) {}

Tensor GatedProducts::gated(Backend& b, const Tensor& gate_up) const {
  return activation_ == Activation::gelu ? b.gelu_mul(gate_up) : b.silu_mul(gate_up);
}

void GatedProducts::add_normed_to(Backend& b, const Tensor& x, const Tensor& gain, float epsilon) const {
  if (gate_up_.parts.size() == 1 && activation_ == Activation::silu)
    b.feed_forward(x, gain, epsilon, gate_up_.parts.front(), down_);
  else
    b.linear_add(x, gated(b, gate_up_.after_norm(b, x, gain, epsilon)), down_);
}

Tensor GatedProducts::of_normed(Backend& b, const Tensor& x, const Tensor& gain, float epsilon) const {
  return b.linear(gated(b, gate_up_.after_norm(b, x, gain, epsilon)), down_);
}

void GatedProducts::add_to(Backend& b, const Tensor& x, const Tensor& h) const {
  b.linear_add(x, gated(b, gate_up_.of(b, h)), down_);
}

Tensor GatedProducts::of(Backend& b, const Tensor& x) const { return b.linear(gated(b, gate_up_.of(b, x)), down_); }

}  // namespace foretoken

// A feed-forward by experts: Mixtral (Jiang et al. 2024, arXiv 2401.04088), Qwen3-MoE (2505.09388), Qwen2-MoE
// (2407.10671), which has a shared expert beside those that are chosen, as DeepSeek-V2 (2405.04434) and V3 (2412.19437)
// have, and gpt-oss (2508.10925), which has biases and a gate of its own.
#include "framework/model/feed_forward.h"

namespace foretoken {
namespace {

// The modules of a mixture in a checkpoint.
struct ExpertModules {
  const MixtureConfig& m;
  std::string module;  // "model.layers.3.mlp"

  ExpertModules(const ModelConfig& c, const std::string& prefix) : m(*c.mixture), module(prefix + m.module) {}
  std::string router() const { return module + "." + m.router; }
  std::string correction() const { return router() + ".e_score_correction_bias"; }
  std::string shared() const { return module + (m.shared_gate ? ".shared_expert" : ".shared_experts"); }
  std::string shared_gate() const { return module + ".shared_expert_gate"; }
  std::string of(int expert, const std::string& matrix) const {
    return module + ".experts." + std::to_string(expert) + "." + matrix;
  }
  // Of every expert that is held the modules of these matrices.
  std::vector<std::vector<std::string>> of_all(const std::vector<std::string>& matrices) const {
    std::vector<std::vector<std::string>> all(static_cast<std::size_t>(m.held_experts()));
    for (std::size_t e = 0; e < all.size(); ++e)
      for (const std::string& matrix : matrices) all[e].push_back(of(m.first + int(e), matrix));
    return all;
  }
};

RoutingRules rules_of(const MixtureConfig& m) {
  RoutingRules r(m.used, m.renormalized);
  r.sigmoid = m.sigmoid, r.sums_two = m.sums_two;
  r.groups = m.groups, r.used_groups = m.used_groups, r.scale = float(m.scale);
  return r;
}

class ExpertFeedForward final : public FeedForward {
 public:
  ExpertFeedForward(const WeightLoader& load, const ModelConfig& c, const std::string& prefix)
      : mixture_(*c.mixture), epsilon_(float(c.norm_epsilon)), rules_(rules_of(*c.mixture)), rank_(c.rank) {
    const ExpertModules modules(c, prefix);
    norm_ = load.vector(feed_forward_norm(c, prefix));
    router_ = load.unrounded(modules.router());
    rules_.correction = load.vector_if(modules.correction());
    gate_up_ = load.experts(modules.of_all({modules.m.gate, modules.m.up}));
    down_ = load.experts(modules.of_all({modules.m.down}));
    if (modules.m.shared_width == 0) return;
    shared_ = GatedProducts(load, c, modules.shared());
    if (modules.m.shared_gate) shared_gate_ = load.unrounded(modules.shared_gate());
  }

  void add_to(Backend& b, const Tensor& x) const override {
    const Tensor h = b.rms_norm_for(x, norm_, epsilon_, router_);
    const Routing routing = b.route(b.linear(h, router_), rules_);
    if (!rank_) return add_products(b, x, h, routing);
    const Tensor y = b.zeros(x.shape());  // this rank's part of what is added
    add_products(b, y, h, own(b, routing));
    b.all_reduce(y, *rank_);
    b.add(x, y);
  }

  std::int64_t bytes() const override {
    return router_.bytes() + expert_bytes() + shared_.bytes() + (shared_gate_ ? shared_gate_.bytes() : 0);
  }
  std::int64_t expert_bytes() const override { return gate_up_.bytes() + down_.bytes(); }

 private:
  Routing own(Backend& b, const Routing& routing) const {
    const int held = mixture_.held_experts();
    return held < mixture_.experts ? b.held_experts(routing, mixture_.first, held) : routing;
  }
  void add_products(Backend& b, const Tensor& x, const Tensor& h, const Routing& routing) const {
    if (const auto& clamped = mixture_.clamped) {
      const Tensor gate_up = b.grouped_linear(h, routing, gate_up_),
                   hidden = b.clamped_mul(gate_up, float(clamped->slope), float(clamped->limit));
      b.add_shares(x, b.grouped_linear(hidden, routing, down_), routing);
    } else {
      b.expert_feed_forward(x, h, routing, gate_up_, down_);
    }
    if (shared_gate_)
      b.add_gated(x, shared_.of(b, h), b.linear(h, shared_gate_));
    else if (shared_.bytes() > 0)
      shared_.add_to(b, x, h);
  }

  MixtureConfig mixture_;
  float epsilon_;
  RoutingRules rules_;
  std::shared_ptr<const Rank> rank_;  // of a divided model
  Tensor norm_;                       // f32 [width]
  Weight router_;                     // [experts, width]
  ExpertWeights gate_up_;             // [2 hidden, width] of each
  ExpertWeights down_;                // [width, hidden] of each
  GatedProducts shared_;              // of the shared expert
  Weight shared_gate_;                // [1, width]; absent without a shared expert, and where that has none
};

}  // namespace

std::map<std::string, Shape> tensors_of_experts(const ModelConfig& c, const std::string& prefix) {
  const ExpertModules modules(c, prefix);
  const MixtureConfig& m = modules.m;
  std::map<std::string, Shape> all;
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    all[name + ".weight"] = {rows, columns};
    if (m.biases) all[name + ".bias"] = {rows};
  };
  matrix(modules.router(), m.experts, c.width);
  if (m.corrected) all[modules.correction()] = {m.experts};
  for (int e = m.first; e < m.first + m.held_experts(); ++e) {
    for (const std::string& name : {m.gate, m.up}) matrix(modules.of(e, name), m.width, c.width);
    matrix(modules.of(e, m.down), c.width, m.width);
  }
  if (m.shared_width == 0) return all;
  all.merge(GatedProducts::tensors(c, modules.shared(), m.shared_width));
  if (m.shared_gate) all[modules.shared_gate() + ".weight"] = {1, c.width};
  return all;
}

std::shared_ptr<const FeedForward> load_experts(const WeightLoader& load, const ModelConfig& c,
                                                const std::string& prefix) {
  return std::make_shared<const ExpertFeedForward>(load, c, prefix);
}

}  // namespace foretoken

// Runs a calibration text through a model on a device, one layer at a time, and gives the inputs of the layer's
// products. In memory are one layer and the states of the text. This module must not know how matrices are rounded.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "experiments/quantize/method.h"
#include "framework/model/checkpoint.h"
#include "framework/model/config.h"
#include "kernels/backend.h"

namespace foretoken {

// A device that tells of what its products read, and otherwise does what another device does.
// Fused operations are computed by the plain ones, so every product is a linear().
class ObservingBackend final : public Backend {
 public:
  // Called before each product with its inputs [rows, in], on the device.
  using Observe = std::function<void(const Tensor& x)>;

  // `device` must outlive it, and what it allocated.
  ObservingBackend(Backend& device, Observe observe) : device_(device), observe_(std::move(observe)) {}
  // The rows after the last feed_forward: f32 [rows, width].
  const Tensor& states() const { return states_; }

  Tensor linear(const Tensor& x, const Weight& w) override {
    if (observe_) observe_(x);
    return device_.linear(x, w);
  }
  void feed_forward(Tensor x, const Tensor& gain, float epsilon, const Weight& gate_up, const Weight& down) override {
    Backend::feed_forward(x, gain, epsilon, gate_up, down);
    states_ = x;
  }

  std::string name() const override { return device_.name(); }
  std::string description() const override { return device_.description(); }
  Device device() const override { return device_.device(); }
  Tensor allocate(Shape shape, DType dtype) override { return device_.allocate(shape, dtype); }
  Tensor upload(const Tensor& host) override { return device_.upload(host); }
  void copy(const Tensor& from, Tensor to) override { device_.copy(from, to); }
  std::int64_t free_memory() const override { return device_.free_memory(); }
  MemoryUse memory() const override { return device_.memory(); }
  void restart_peak() override { device_.restart_peak(); }
  void fetch(const Tensor& from, Tensor to) override { device_.fetch(from, to); }
  Mirror mirror(std::int64_t bytes) override { return device_.mirror(bytes); }
  void push(const Mirror& mirror, std::int64_t bytes) override { device_.push(mirror, bytes); }
  Weight prepare(Weight weight) override { return device_.prepare(std::move(weight)); }
  Tensor embed(const Weight& table, const Tensor& tokens) override { return device_.embed(table, tokens); }
  Tensor rms_norm(const Tensor& x, const Tensor& gain, float epsilon) override {
    return device_.rms_norm(x, gain, epsilon);
  }
  void head_norm(Tensor x, const Tensor& gain, float epsilon) override { device_.head_norm(x, gain, epsilon); }
  void rope(Tensor q, Tensor k, const Layout& layout, const RotaryRules& rotation, int head_size) override {
    device_.rope(q, k, layout, rotation, head_size);
  }
  void store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) override {
    device_.store(k, v, kv, layout);
  }
  Tensor attend(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) override {
    return device_.attend(q, kv, layout, rules);
  }
  Tensor attention_mass(const Tensor& q, const KvLayer& kv, const Layout& layout,
                        const AttentionRules& rules) override {
    return device_.attention_mass(q, kv, layout, rules);
  }
  void bound_pages(std::span<const KvLayer> layers, std::span<const std::int32_t> pages) override {
    device_.bound_pages(layers, pages);
  }
  Tensor select_pages(const Tensor& q, const KvLayer& kv, const Layout& layout) override {
    return device_.select_pages(q, kv, layout);
  }
  ExpertWeights group_experts(std::vector<Weight> matrices) override {
    return device_.group_experts(std::move(matrices));
  }
  Routing route(const Tensor& logits, const RoutingRules& rules) override { return device_.route(logits, rules); }
  Tensor grouped_linear(const Tensor& x, const Routing& routing, const ExpertWeights& experts) override {
    return device_.grouped_linear(x, routing, experts);
  }
  void add_shares(Tensor x, const Tensor& y, const Routing& routing) override { device_.add_shares(x, y, routing); }
  void add_gated(Tensor x, const Tensor& y, const Tensor& logits) override { device_.add_gated(x, y, logits); }
  Tensor silu_mul(const Tensor& gate_up) override { return device_.silu_mul(gate_up); }
  Tensor gelu_mul(const Tensor& gate_up) override { return device_.gelu_mul(gate_up); }
  Tensor clamped_mul(const Tensor& gate_up, float slope, float limit) override {
    return device_.clamped_mul(gate_up, slope, limit);
  }
  void scale(Tensor x, float by) override { device_.scale(x, by); }
  void softcap(Tensor x, float cap) override { device_.softcap(x, cap); }
  void silu_add(Tensor x, const Tensor& y) override { device_.silu_add(x, y); }
  void add(Tensor x, const Tensor& y) override { device_.add(x, y); }
  Tensor gather(const Tensor& x, const Tensor& rows) override { return device_.gather(x, rows); }
  Distributions distributions(const Tensor& logits, std::span<const Warp> warps) override {
    return device_.distributions(logits, warps);
  }
  void adjust(Tensor logits, std::span<const Adjustment> adjustments) override { device_.adjust(logits, adjustments); }
  void mask(Tensor logits, std::span<const std::uint32_t* const> allowed) override { device_.mask(logits, allowed); }
  void draw(const Distributions& distributions, std::span<const TokenDraw> draws, Tensor to) override {
    device_.draw(distributions, draws, to);
  }
  void rank(const Distributions& raw, int k, Tensor tokens, Tensor q) override { device_.rank(raw, k, tokens, q); }
  void pick(const Tensor& known, const Tensor& at, Tensor to, int vocab) override {
    device_.pick(known, at, to, vocab);
  }
  void recall(const Tensor& at, Tensor to, DType from) override { device_.recall(at, to, from); }
  void spread(const Tensor& from, const Tensor& ids, Tensor to) override { device_.spread(from, ids, to); }
  Tensor translate(const Tensor& tokens, const Tensor& ids) override { return device_.translate(tokens, ids); }
  void move(std::span<const Moves> moves) override { device_.move(moves); }
  int padded(int n) const override { return device_.padded(n); }
  void synchronize() override { device_.synchronize(); }
  void for_each(int n, const std::function<void(int)>& f) override { device_.for_each(n, f); }

 private:
  Backend& device_;
  Observe observe_;
  Tensor states_;
};

class Calibration {
 public:
  // The products of a layer, in the order in which they are computed, and the modules whose matrices they multiply.
  static const std::vector<std::vector<std::string>>& products();
  // The index there of the product that multiplies the matrix of a module; a module that has none is an Error.
  static std::size_t product_of(const std::string& module);

  // `windows`: tokens that are read together. `device` and `checkpoint` must outlive it.
  Calibration(Backend& device, const ModelConfig& config, const Checkpoint& checkpoint,
              const std::vector<std::vector<Token>>& windows);

  // f32 [all tokens, width]: what the next layer reads.
  const Tensor& states() const { return states_; }
  void set_states(const Tensor& states) { states_ = states; }

  using Matrices = std::map<std::string, Weight>;  // by module, "mlp.up_proj"
  using Observe = std::function<void(std::size_t product, const Tensor& x)>;
  // Calls `observe` with the inputs of each product of this layer, host f32 [tokens of a window, in], window after
  // window. Returns the outputs of the layer, f32 like the states.
  Tensor observe(int layer, const Observe& observe) { return run(layer, {}, observe); }
  // The outputs of this layer with these matrices in place of the checkpoint's.
  Tensor outputs(int layer, const Matrices& matrices) { return run(layer, matrices, {}); }

 private:
  Tensor run(int layer, const Matrices& matrices, const Observe& observe);

  Backend& device_;
  ModelConfig config_;
  const Checkpoint& checkpoint_;
  std::vector<int> lengths_;  // of the windows
  Tensor states_;
};

// The tokens of a calibration text in windows that are read together. A text that is too short is an Error.
std::vector<std::vector<Token>> calibration_windows(const DenseModel& model, const MethodOptions& options);

}  // namespace foretoken

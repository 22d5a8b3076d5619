// The reference: plain loops and Eigen, f32 activations (double where it is cheap), no threads. It is slow and easy to
// verify. This module must not know how the fast backends compute the same.
#pragma once
#include <string>

#include "kernels/host_backend.h"

namespace foretoken {

class ReferenceBackend : public HostBackend {
 public:
  std::string name() const override { return "reference"; }
  std::string description() const override { return "plain loops and Eigen, one thread"; }

  Weight prepare(Weight weight) override;
  Tensor embed(const Weight& table, const Tensor& tokens) override;
  Tensor rms_norm(const Tensor& x, const Tensor& gain, float epsilon) override;
  Tensor linear(const Tensor& x, const Weight& w) override;
  void rope(Tensor q, Tensor k, const Layout& layout, const RotaryRules& rotation, int head_size) override;
  Tensor attend(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) override;
  Tensor attention_mass(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) override;
  Tensor silu_mul(const Tensor& gate_up) override;
  Tensor gelu_mul(const Tensor& gate_up) override;
  Tensor clamped_mul(const Tensor& gate_up, float slope, float limit) override;
  void softcap(Tensor x, float cap) override;
  void silu_add(Tensor x, const Tensor& y) override;
  void add(Tensor x, const Tensor& y) override;
  Tensor grouped_linear(const Tensor& x, const Routing& routing, const ExpertWeights& experts) override;
};

// The values that a weight represents, f32 [out, in].
Tensor dequantize(const Weight& weight);

}  // namespace foretoken

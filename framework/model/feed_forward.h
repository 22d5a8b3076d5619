// The second half of a decoder layer, as a piece that is chosen by configuration: dense, or a mixture of experts. To
// add a kind, write a class beside those of feed_forward.cpp or experts.cpp and choose it in load(). This module must
// not know what stands before or behind it.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "framework/model/config.h"
#include "framework/model/weight_loader.h"

namespace foretoken {

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  // x [rows, width] f32 += f(rms_norm(x)).
  virtual void add_to(Backend& backend, const Tensor& x) const = 0;
  // Of its matrices. Of them, those of experts, of which a row uses only some.
  virtual std::int64_t bytes() const = 0;
  virtual std::int64_t expert_bytes() const { return 0; }

  // The tensors of a layer with this prefix that the configuration's piece reads, its norm among them.
  static std::map<std::string, Shape> tensors(const ModelConfig& config, const std::string& prefix);
  static std::shared_ptr<const FeedForward> load(const WeightLoader& load, const ModelConfig& config,
                                                 const std::string& prefix);
};

// down(act(gate x) * up x) of rows as they are, under the name of a module. The gate and up are one matrix where the
// configuration has them fused.
class GatedProducts {
 public:
  GatedProducts() = default;
  GatedProducts(const WeightLoader& load, const ModelConfig& config, const std::string& module);
  static std::map<std::string, Shape> tensors(const ModelConfig& config, const std::string& module,
                                              std::int64_t hidden);
  // x += that of rms_norm(x, gain, epsilon).
  void add_normed_to(Backend& backend, const Tensor& x, const Tensor& gain, float epsilon) const;
  Tensor of_normed(Backend& backend, const Tensor& x, const Tensor& gain, float epsilon) const;  // f32 [rows, width]
  Tensor of(Backend& backend, const Tensor& x) const;                                            // likewise
  void add_to(Backend& backend, const Tensor& x, const Tensor& h) const;                         // x += that of h
  std::int64_t bytes() const { return gate_up_.bytes() + down_.bytes(); }

 private:
  Tensor gated(Backend& backend, const Tensor& gate_up) const;

  Activation activation_ = Activation::silu;
  Products gate_up_;  // [2 hidden, width]
  Weight down_;       // [width, hidden]
};

// The norm of what a feed-forward reads.
std::string feed_forward_norm(const ModelConfig& config, const std::string& prefix);

// experts.cpp: a mixture of experts (MixtureConfig).
std::map<std::string, Shape> tensors_of_experts(const ModelConfig& config, const std::string& prefix);
std::shared_ptr<const FeedForward> load_experts(const WeightLoader& load, const ModelConfig& config,
                                                const std::string& prefix);

}  // namespace foretoken

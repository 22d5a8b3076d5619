// Runs a calibration text through a model, one layer at a time, and gives the inputs of the layer's products. In memory
// are one layer and the states of the text. This module must not know how matrices are rounded.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/model/checkpoint.h"
#include "framework/model/config.h"
#include "kernels/distribution.h"  // Token

namespace foretoken {

class Calibration {
 public:
  // The products of a layer, in the order in which they are computed, and the modules whose matrices they multiply.
  static const std::vector<std::vector<std::string>>& products();

  // `windows`: tokens that are read together. `checkpoint` must outlive it.
  Calibration(const ModelConfig& config, const Checkpoint& checkpoint, const std::vector<std::vector<Token>>& windows);

  // f32 [all tokens, width]: what the next layer reads.
  const Tensor& states() const { return states_; }
  void set_states(const Tensor& states) { states_ = states; }

  using Observe = std::function<void(std::size_t product, const Tensor& x)>;
  // Calls `observe` with the inputs f32 [tokens of a window, in] of each product of this layer, window after window.
  void observe(int layer, const Observe& observe);
  // Replaces the states by the outputs of this layer, with these matrices in place of the checkpoint's (by module,
  // "mlp.up_proj").
  void advance(int layer, const std::map<std::string, Weight>& matrices);

 private:
  void run(int layer, const std::map<std::string, Weight>& matrices, const Observe& observe, const Tensor& next);

  ModelConfig config_;
  const Checkpoint& checkpoint_;
  std::vector<int> lengths_;  // of the windows
  Tensor states_;
};

}  // namespace foretoken

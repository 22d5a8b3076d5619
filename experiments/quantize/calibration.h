// Runs a calibration text through a model on a device, one layer at a time, and gives the inputs of the layer's
// products. In memory are one layer and the states of the text. This module must not know how matrices are rounded.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/model/checkpoint.h"
#include "framework/model/config.h"
#include "kernels/backend.h"

namespace foretoken {

class Calibration {
 public:
  // The products of a layer, in the order in which they are computed, and the modules whose matrices they multiply.
  static const std::vector<std::vector<std::string>>& products();
  // The index there of the product that multiplies the matrix of a module; a module that has none is an Error.
  static std::size_t product_of(const std::string& module);

  // `windows`: tokens that are read together. `device` and `checkpoint` must outlive it.
  Calibration(Backend& device, const ModelConfig& config, const Checkpoint& checkpoint,
              const std::vector<std::vector<Token>>& windows);

  std::int64_t tokens() const { return states_.dim(0); }

  // f32 [all tokens, width]: what the next layer reads.
  const Tensor& states() const { return states_; }
  void set_states(const Tensor& states) { states_ = states; }

  using Observe = std::function<void(std::size_t product, const Tensor& x)>;
  // Calls `observe` with the inputs of each product of this layer, host f32 [tokens of a window, in], window after
  // window. Returns the outputs of the layer, f32 like the states.
  Tensor observe(int layer, const Observe& observe);
  // The outputs of this layer with these matrices in place of the checkpoint's (by module, "mlp.up_proj").
  Tensor outputs(int layer, const std::map<std::string, Weight>& matrices);

 private:
  Tensor run(int layer, const std::map<std::string, Weight>& matrices, const Observe& observe);

  Backend& device_;
  ModelConfig config_;
  const Checkpoint& checkpoint_;
  std::vector<int> lengths_;  // of the windows
  Tensor states_;
};

}  // namespace foretoken

// What a directory with Hydra's heads holds (Ankner et al. 2024, arXiv 2402.05109): perceptrons on a state and the
// tokens after it, and in Hydra++ a decoder layer that makes that state. This module must not know devices.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "framework/model/config.h"
#include "framework/model/model.h"
#include "framework/model/tensor_source.h"

namespace foretoken {

struct HydraFiles {
  std::string name;  // for messages
  int heads = 0;
  int layers = 1;          // of each perceptron
  bool prefix = false;     // Hydra++
  ModelConfig layer = {};  // its decoder layer
  // "{k}.{j}.linear.weight" and ".bias" of layer j of head k, "{k}.0.res_connection.weight" and ".bias",
  // "{k}.lm_head.weight" and ".bias"; of Hydra++ also "layers.0.self_attn.q_proj.weight" and so on, "norm.weight".
  std::function<std::shared_ptr<const TensorSource>()> tensors = {};

  std::map<std::string, Shape> shapes(const ModelInfo& target) const;
};

// `head`: a directory, or {"random": SHAPE, "seed": 1, "heads": 4, "layers": 1, "prefix": 0}, as of open_eagle, of
// which 0 means the default and a prefix of 1 Hydra++. `epsilon`: of the target's norms. What is not known, and heads
// for another target, is an Error.
HydraFiles open_hydra(const nlohmann::json& head, const ModelInfo& target, double epsilon);

}  // namespace foretoken

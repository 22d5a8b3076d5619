// The matrices of experts that a checkpoint of gpt-oss has as one tensor of all of them, by expert. This module must
// not know how experts are computed.
#pragma once
#include <memory>

#include "framework/model/checkpoint.h"
#include "framework/model/config.h"

namespace foretoken {

// The tensors of `rest`, and MODULE.experts.3.gate_proj.weight and so on in place of MODULE.experts.gate_up_proj, whose
// outputs are those of the gate and of up in turns, and MODULE.experts.down_proj. These are dense, [experts, inputs,
// outputs], or MXFP4 (gate_up_proj_blocks, gate_up_proj_scales), [experts, outputs, ...]. Biases are [experts,
// outputs]. `checkpoint`: what `rest` was made of. Another type or shape is an Error that names the tensor.
std::shared_ptr<const TensorSource> by_expert(std::shared_ptr<const Checkpoint> checkpoint,
                                              std::shared_ptr<const TensorSource> rest, const ModelConfig& config);

}  // namespace foretoken

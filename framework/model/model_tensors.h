// The tensors that a transformer reads, by their names in a Hugging Face checkpoint, and the rule that a checkpoint
// holds these and no others. A forward that leaves out a tensor of its checkpoint computes another function than the
// trained one, and nothing else would report it. This module must not know how a tensor is used.
#pragma once
#include <map>
#include <string>

#include "framework/model/config.h"
#include "framework/model/tensor_source.h"

namespace foretoken {

// Of a layer's tensors: "model.layers.3.".
std::string layer_prefix(int layer);
std::map<std::string, Shape> tensors_of(const ModelConfig& config);

// An Error if the source holds a tensor that a transformer of this configuration does not read. Some tensors are
// exempt, since they do not change its function: buffers of the rotary embedding, a quantizer's scales of matrices that
// are stored dense, layers of multi-token prediction, and an lm_head that equals the embedding to which it is tied.
void expect_no_other_tensors(const ModelConfig& config, const TensorSource& source);

}  // namespace foretoken

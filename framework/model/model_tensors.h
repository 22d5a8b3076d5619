// The tensors that a transformer reads, by their names in a Hugging Face checkpoint, and the rule that a checkpoint
// holds these and no others. A forward without a matrix that its checkpoint holds computes another function than the
// one that was trained, and nothing else would tell. This module must not know how a tensor is used.
#pragma once
#include <map>
#include <string>

#include "framework/model/config.h"
#include "framework/model/tensor_source.h"

namespace foretoken {

std::map<std::string, Shape> tensors_of(const ModelConfig& config);

// An Error unless all that the source holds is read by a transformer of this configuration, or cannot change what it
// computes: buffers of the rotation, a quantizer's notes about matrices that are there in full, layers that predict
// further tokens, and an lm_head that equals the embedding to which it is tied.
void expect_no_other_tensors(const ModelConfig& config, const TensorSource& source);

}  // namespace foretoken

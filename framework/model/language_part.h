// The language model in a checkpoint that sees too. This module must not know what its tensors are for.
#pragma once
#include <memory>

#include "framework/model/tensor_source.h"

namespace foretoken {

// The tensors of the language model under the names of a model that does not see ("language_model.model.layers.3." and
// "model.language_model.layers.3." become "model.layers.3."); those of the vision tower and of what joins the two are
// left out.
std::shared_ptr<const TensorSource> language_part(std::shared_ptr<const TensorSource> whole);

}  // namespace foretoken

// Opens the model that a run names: its configuration and the source of its tensors.
// This module must not know devices, caches or what the model is for.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "framework/model/config.h"
#include "framework/model/model_choice.h"
#include "framework/model/tensor_source.h"

namespace foretoken {

struct OpenModel {
  ModelConfig config;
  std::shared_ptr<const TensorSource> tensors;
  std::string dtype;  // as TransformerOptions takes it: that of the choice, or "auto" where it names the stored format
};

// Resolves a directory or file that a run names.
using FindDirectory = std::function<std::filesystem::path(const std::string&)>;

// Random models have no end of sequence. Weights of the type "f32" are inflated without rounding.
// Where matrices are quantized, in a directory or a GGUF file, and their format contradicts the choice's dtype, or its
// activations are rounded in a way that is not implemented: an Error that names both. `between` is called now and then
// while random matrices are filled; what it throws ends that.
OpenModel open_model(const ModelChoice& choice, const FindDirectory& find, const std::function<void()>& between = {});

// The vocabulary fingerprint of random models: equal for equal sizes.
std::uint64_t random_vocabulary(int tokens);

}  // namespace foretoken

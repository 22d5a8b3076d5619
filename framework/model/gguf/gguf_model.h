// A GGUF file as all that a model needs. This module must not know devices.
#pragma once
#include <filesystem>
#include <memory>

#include "framework/model/model_files.h"

namespace foretoken {

std::shared_ptr<const ModelFiles> open_gguf(const std::filesystem::path& file);

}  // namespace foretoken

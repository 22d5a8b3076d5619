// How a model is called where it comes from. This module must not know runs.
#pragma once
#include <filesystem>

#include "experiments/report/result.h"

namespace foretoken {

// Name and revision of a model's directory or GGUF file. The name: "org/name" where the directory is a snapshot in
// the cache of Hugging Face, "general.name" of a GGUF file, else that of the directory or file. The revision: that of
// the snapshot, or "_commit_hash" of config.json; absent where neither is there. A file that cannot be read as what it
// should be has its name alone.
ModelIdentity model_identity(const std::filesystem::path& path);

}  // namespace foretoken

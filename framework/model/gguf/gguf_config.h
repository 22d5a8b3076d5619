// The configuration of a model in a GGUF file, from its metadata and the names of its tensors. This module must not
// know weights or tokenizers.
#pragma once
#include "framework/model/config.h"
#include "framework/model/gguf/gguf_file.h"

namespace foretoken {

// The architectures that are read: "llama" (Llama, Mistral and Mixtral), "qwen2", "qwen3", "qwen2moe", "qwen3moe",
// "gemma2", "gemma3", "phi3".
std::vector<std::string> gguf_architectures();

// Another architecture, or metadata of it that are not known here, is an Error that names it.
ModelConfig gguf_config(const GgufFile& file);

// Whether the rows of q and k have the order of a rotation of neighbours (2 i, 2 i + 1), which GGUF's "llama" has; a
// Hugging Face checkpoint rotates i with i + half of the head.
bool rotates_neighbours(const GgufFile& file);

}  // namespace foretoken

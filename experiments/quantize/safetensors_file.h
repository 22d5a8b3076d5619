// Writes a safetensors file (https://github.com/huggingface/safetensors#format). This module must not know what the
// tensors are for.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "kernels/tensor.h"

namespace foretoken {

// A dense host tensor and how a file names its type: "BF16", "I32", "F8_E4M3", ...
struct StoredTensor {
  std::string name, type;
  Tensor values;
};

// With the name that its own type has; F8_E4M3 and other types that are bytes here must be named by the caller.
StoredTensor stored_tensor(std::string name, Tensor values);

// The file appears whole under its name, or not at all: it is written beside it and renamed. A full disk or another
// failure is an Error that names the file.
void write_safetensors(const std::filesystem::path& file, std::span<const StoredTensor> tensors);
// Likewise for any bytes. A symbolic link stays, and the file to which it leads is replaced.
void write_whole(const std::filesystem::path& file, std::span<const std::string_view> pieces);
inline void write_whole(const std::filesystem::path& file, std::string_view bytes) { write_whole(file, {&bytes, 1}); }

}  // namespace foretoken

// One safetensors file: 8 bytes of header length, a JSON header, the tensors' bytes. The file is mapped and checked,
// not copied. This module must not know directories, shards or what the tensors are for. Format:
// https://github.com/huggingface/safetensors#format
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "kernels/tensor.h"

namespace foretoken {

// Maps `file` and checks the whole header before it returns any tensor: sizes, offsets, dtypes, overlaps, holes,
// duplicate names. The tensors are views into the mapping and keep it alive; one that lies unaligned for its dtype is
// copied. Supports F32, F16, BF16, I64, I32, I8, U8, U64, F8_E4M3 of at most four dimensions. The bytes are read-only.
std::map<std::string, Tensor> map_safetensors(const std::filesystem::path& file);

}  // namespace foretoken

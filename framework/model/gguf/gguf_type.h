// The types of tensors in GGUF files, and how the blocks of the quantized ones hold codes and scales. This module must
// not know files or models. Layout of the blocks: ggml-common.h of https://github.com/ggml-org/ggml.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "kernels/tensor.h"

namespace foretoken {

// The groups of one block: scales and minima, one each for a group.
struct GgufGroups {
  std::span<float> scales, minima;
};

struct GgufType {
  std::uint32_t number;  // in the file
  const char* name;
  int block, bytes;  // elements that are stored together, and how many bytes they take
  DType dense;       // the type of the elements, where `bits` is 0

  // Of quantized types. A weight is  scale * (code - offset) - minimum,  each operation rounded to f32.
  int bits = 0;    // of a code
  int group = 0;   // elements that share a scale
  int offset = 0;  // the code of 0: 2^(bits - 1), or 0 where the type has minima
  bool minima = false;
  void (*unpack)(const std::uint8_t* block, std::uint8_t* codes, const GgufGroups& groups) = nullptr;
  bool float_codes = false;  // codes are numbers of FP4 (formats::mxfp4), and `offset` counts for nothing

  int groups() const { return group ? block / group : 0; }  // of a block
};

// An Error names the type and lists the supported ones; `who`: the file and the tensor.
const GgufType& gguf_type(std::uint32_t number, const std::string& who);

}  // namespace foretoken

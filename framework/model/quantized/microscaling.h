// Codes of 4 bits, two a byte with the lower nibble first, and an exponent for each 32 inputs of an output. This module
// must not know how the tensors are named.
#pragma once
#include "framework/model/quantized/parts.h"
#include "kernels/formats/format.h"

namespace foretoken::microscaling {

constexpr std::int64_t kGroup = 32;

// `codes`: U8 of out * in / 2 bytes. `scales`: the part U8 [out, in / 32] of exponents plus 127; 255 means NaN, and 253
// and 254 give infinite weights.
Weight unpack(const Parts& parts, const Tensor& codes, const std::string& scales);
// The same with the exponents beside them, U8 [out, in / 32], of which `scales` is the part's name.
Weight unpack(const Parts& parts, const Tensor& codes, const Tensor& exponents, const std::string& scales);

}  // namespace foretoken::microscaling

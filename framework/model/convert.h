// Converts the numbers of a host tensor to another type: the type in a checkpoint is often not the one that a backend
// multiplies. This module must not know models.
#pragma once
#include "kernels/tensor.h"

namespace foretoken {

// Writes `from` (f32, bf16 or f16) to `to` (f32 or bf16), both dense and with equally many elements. All cores take
// part; the result is the same as with one. Another type is an Error.
void convert(const Tensor& from, const Tensor& to);
// The tensor itself where it has the type.
Tensor converted(const Tensor& from, DType type);

}  // namespace foretoken

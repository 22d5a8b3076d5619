// Quantized caches: how the keys and values of a token become codes of 8 bits, and what codes mean.
//
// The numbers of one head of one token are rounded as a row of inputs is (kernels/formats/activations): to bf16, then
// to the nearest of x / s, ties to even, where s = max|x| / greatest: integers (DType::i8, greatest 127) or FP8
// (DType::e4m3, greatest 448). No scale looks at another token or head. A head whose scale would be subnormal becomes 0
// with scale 0. One with a NaN or an infinity has scale NaN and codes 0: whatever attends to it becomes NaN.
//
// A code c with scale s stands for c * s. Codes are bf16 numbers exactly. Attention multiplies the score of a key,
// summed over codes, by the key's scale, and the softmax weight of a value by the value's scale; the sum of weights
// that divides the result has no scales. The rows of a forward are read as they are stored.
//
// This module must not know how a device multiplies, or what is cached.
#pragma once
#include <functional>
#include <span>

#include "kernels/layout.h"

namespace foretoken {

// The codes of one head, with their scale as the result. `cache`: i8 or e4m3.
float round_head(DType cache, std::span<const float> x, std::byte* codes);
// The number that a code stands for, without its scale.
float number_of(DType cache, std::byte code);

using RoundHead = std::function<float(DType cache, std::span<const float> x, std::byte* codes)>;
// Stores row r of k and v, f32 [rows, kv_heads * head_size], in a layer of codes in host memory. v is absent where
// values are parts of keys (KvLayer::latent).
void store_codes(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout, int r,
                 const RoundHead& round);

}  // namespace foretoken

// What the ways to store quantized matrices share: small integers in 32-bit words, scales for blocks of a matrix, and
// the order of inputs. This module must not know which quantizer wrote them.
#pragma once
#include "framework/model/quantized/parts.h"
#include "kernels/formats/format.h"

namespace foretoken::unpacking {

// Integers of 4 or 8 bits, whose code c means c - 2^(bits - 1). `grouped`: an output has several scales.
const WeightFormat& integers(int bits, bool grouped, bool symmetric);

// The greatest |number - zero| of a code. `zeros`: there are zero points, each of them one of the numbers; else they
// are 0.
float greatest(const WeightFormat& format, bool zeros);

// A weight [out, in] whose codes are to be filled in.
Weight empty(const Parts& parts, const WeightFormat& format);

// A weight of signed integers I8 [out, in], one byte each. Throws Error for one beyond the bits of the format.
Weight of_signed(const Parts& parts, const WeightFormat& format, const Tensor& numbers);

// Element i of integers that lie in 32-bit words from the lowest bits on, one after the other, also across words.
// `stride` counts from one word to the next.
inline std::uint8_t packed(const std::int32_t* words, std::int64_t i, int bits, std::int64_t stride = 1) {
  const std::int64_t word = i * bits / 32;
  const int shift = int(i * bits % 32);
  std::uint32_t code = std::uint32_t(words[word * stride]) >> shift;
  if (shift + bits > 32) code |= std::uint32_t(words[(word + 1) * stride]) << (32 - shift);
  return std::uint8_t(code & ((1u << bits) - 1));
}

// The scales of blocks [block_outputs, block_inputs] of a matrix [out, in], one row for each output: f32 [out, in /
// group]. Blocks at the lower and right edges may be smaller.
struct Expanded {
  Tensor values;
  int group = 0;  // divides `in` and lies within one block
};
Expanded expanded(const Tensor& blocks, std::int64_t out, std::int64_t in, std::int64_t block_outputs,
                  std::int64_t block_inputs);
// Sets scales and group of a weight.
void set_scales(Weight& w, const Tensor& blocks, std::int64_t block_outputs, std::int64_t block_inputs);

// The codes of a part F8_E4M3 [out, in], as U8. Throws Error for a NaN among them.
Tensor e4m3_codes(const Parts& parts, const std::string& part);

// Whether every element is 0: such zero points or biases change nothing.
bool all_zero(const Tensor& numbers);

// The inputs sorted by their group (i32 [in]), where group_of [in] names it. Absent where they are sorted already.
// Throws Error unless each of the groups has `group` inputs.
Tensor order_of(const Parts& parts, const std::string& part, const Tensor& group_of, std::int64_t group);
// Moves the columns of the codes into this order.
void reorder(Weight& w, const Tensor& order);

}  // namespace foretoken::unpacking

// Formats of activations: how a row of inputs is rounded before it is multiplied by a matrix of codes.
//
// The row is rounded to bf16, as every device does that multiplies bf16 weights. Its scale is s = max|x| / greatest, or
// one that a checkpoint has for all rows; each input becomes a number, the nearest of x / s, ties to even. The product
// with output o is
//     y = sum over chunks of float(sum of number * (weight number - zero)) * (s * weight scale)
// where every operation is rounded to f32 and chunks are added in ascending order, from 0; then comes the bias.
//   integers: a chunk is a group of the weight, and its sum an integer of 32 bits, so every device has the same bits.
//   e4m3:     a chunk is at most 128 inputs of a group. Its sum is of f32, in any order, and differs from the exact one
//             by at most 2^-17 of the sum of the terms' magnitudes on hosts; so two of them differ by at most 2^-16 of
//             it. Tensor cores that multiply FP8 are less exact: kernels/cuda/products/rounded_boxes.cuh. A device uses
//             one kind of instruction for all row counts.
// No scale depends on another row. A row with a NaN or an infinity becomes NaN, not ordinary numbers. A row whose scale
// would be subnormal becomes 0.
//
// To add a format, write one file beside this one and name it in activation_formats(). This module must not know
// backends, checkpoints or models.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/formats/format.h"

namespace foretoken {

constexpr std::int64_t kChunkInputs = 128;  // of e4m3
// Beyond these a sum of integers might not fit 32 bits: 255 * 128 * 2^16 is less than 2^31.
constexpr std::int64_t kMostRoundedInputs = 1 << 16;

class ActivationFormat {
 public:
  virtual ~ActivationFormat() = default;
  virtual std::string name() const = 0;     // "int8"
  virtual std::string meaning() const = 0;  // in half a sentence
  virtual Coding coding() const = 0;        // of its numbers, and of the weights that they multiply
  virtual float greatest() const = 0;       // the number that a row's greatest magnitude becomes
  // Inputs of at least this magnitude stay apart: they are not rounded to codes (their numbers are 0, and the scale
  // does not count them), and their products with the bf16 weights, in f32 and ascending order from 0, are added to y
  // before the bias. 0: none.
  virtual float outliers() const { return 0; }
  // The nearest numbers of x / s, in place; s > 0.
  virtual void round(std::span<float> x, float s) const = 0;
};

const std::vector<const ActivationFormat*>& activation_formats();

namespace formats {
const ActivationFormat& int8_rows();           // int8_rows.cpp
const ActivationFormat& int8_rows_outliers();  // the same, with outliers apart
const ActivationFormat& e4m3_rows();           // e4m3_rows.cpp
}  // namespace formats

struct Outlier {
  std::int64_t input;
  float value;  // a bf16 number
};

// How a weight's inputs become numbers, in place; returns their scale: 0 for a row that becomes 0, NaN for one that is
// not finite, both with numbers 0. `apart`: its outliers, in ascending order; left as it is by a format without.
float round_row(const Weight& w, std::span<float> x, std::vector<Outlier>& apart);
// The same of a format and a scale for all rows; 0: each row has its own.
float round_row(const ActivationFormat& format, float input_scale, std::span<float> x, std::vector<Outlier>& apart);

// Inputs of a chunk; the last chunk of a group may be smaller.
std::int64_t chunk_of(const ActivationFormat& format, std::int64_t group);

// The same weight, whose inputs are rounded. `input_scale`: for all rows; 0: each has its own. Throws Error where the
// products are not defined: codes of another kind, minima, zero points that are no integers of 8 bits, or too many
// inputs.
Weight with_activations(Weight w, const ActivationFormat& format, float input_scale = 0);

// ---- names of dtype ----

// A format of weights, alone or with one of activations.
struct Precision {
  std::string name;  // "int4", "w4a8"
  const WeightFormat* weights = nullptr;
  const ActivationFormat* activations = nullptr;  // nullptr: inputs are not rounded
};
// The formats of weights alone, then those with activations.
const std::vector<Precision>& precisions();
// nullptr: there is none of this name.
const Precision* find_precision(const std::string& name);
// quantize() to a precision.
Weight quantize(const Weight& dense, const Precision& precision, const ForShares& shares = {},
                DType scales = DType::bf16);

}  // namespace foretoken

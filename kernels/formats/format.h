// Formats of weights. A weight is a code of at most 8 bits, and the codes of a group share a scale. A format says which
// number a code means; the weight is then
//     bf16(scale * (number - zero) - minimum)
// where each operation is rounded to f32. So a weight is the same bf16 number on every device, and a quantized matrix
// multiplies exactly as its dense copy does. One format has no codes: 2:4 keeps two bf16 numbers of each four inputs,
// and its dense copy has zeros for the others. To add a format, write one file beside this one and name it in
// weight_formats(). This module must not know backends, checkpoints or models.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/weight.h"

namespace foretoken {

// Of one group. Absent parts are 0: a format without zero points subtracts 0, which changes no bit.
struct GroupScale {
  float scale = 0, zero = 0, minimum = 0;
};

// The least and the greatest of some weights; both NaN where one of them is NaN.
struct Extremes {
  float low = 0, high = 0;
  float magnitude() const { return low < 0 && -low > high ? -low : high; }
};
Extremes extremes(std::span<const float> weights);

// A rectangle of weights that share a scale.
struct Block {
  std::int64_t outputs = 0, inputs = 0;
};

// How a kernel may compute numbers without the table: integers: code c is c - 2^(bits - 1), so that products of codes
// are sums of integers; e4m3: FP8; e2m1: FP4, 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives; table: only by the table.
// sparse: there are no codes (Weight::kept).
enum class Coding : std::uint8_t { integers, e4m3, e2m1, table, sparse };

class WeightFormat {
 public:
  virtual ~WeightFormat() = default;
  virtual std::string name() const = 0;     // as in {"dtype": "nf4"}
  virtual std::string meaning() const = 0;  // in half a sentence
  virtual int bits() const = 0;             // of a code, at most 8; of a number that Coding::sparse keeps, 16
  // By code, f32 [2^bits]; none of Coding::sparse. A code that no weight is encoded to may mean NaN.
  virtual std::span<const float> numbers() const = 0;
  virtual Coding coding() const { return Coding::table; }

  // ---- how a dense matrix is rounded ----
  // The blocks of a matrix [out, in]: as large as the format allows where they divide the inputs; {0, 0} where none
  // does.
  virtual Block block(std::int64_t out, std::int64_t in) const = 0;
  // The scale of a block with these extremes. NaN where they are not finite: such a block becomes NaN as a whole, and
  // is not hidden among ordinary numbers. Of formats with codes, as what follows.
  // `scales`: bf16, f16 or f32, of which scales of integers and of FP8 are numbers.
  virtual GroupScale fit(const Extremes& e, DType scales) const { return (void)e, (void)scales, GroupScale(); }
  // The scales of a whole matrix, in the order of its blocks, as they are stored: some formats round them together.
  virtual void round_scales(std::span<float> scales) const { (void)scales; }
  // The code of the nearest number for each weight; ties as the format says.
  virtual void encode(std::span<const float> weights, GroupScale s, std::uint8_t* codes) const {
    (void)weights, (void)s, (void)codes;
  }
};

// The formats to which `dtype` rounds, by name.
const std::vector<const WeightFormat*>& weight_formats();
// nullptr: there is none of this name.
const WeightFormat* find_format(const std::string& name);

// The blocks of a matrix [out, in]: of `group` inputs of one output, or, where that is 0, as WeightFormat::block says.
// Throws Error unless they divide the inputs: `what`: the matrix; `remedy`: what the user is told to do.
Block blocks_of(const WeightFormat& format, std::int64_t out, std::int64_t in, int group = 0,
                const std::string& what = "a weight", const std::string& remedy = "choose another format");

// The bf16 number of a code, as f32.
inline float weight_of(float number, GroupScale s) {
  const float scaled = s.scale * (number - s.zero);
  return float(bf16(scaled - s.minimum));
}

// Rounds a dense weight [out, in]. `group`: inputs that share a scale, for a format whose blocks have one output (2:4
// has no scales: its blocks are of 4 all the same); 0: as WeightFormat::block says. `shares` divides the work among
// threads; without it the calling thread does all of it, with the same result. `scales`: as of WeightFormat::fit.
// Throws Error if the blocks do not divide the inputs.
Weight quantize(const Weight& dense, const WeightFormat& format, int group = 0, const ForShares& shares = {},
                DType scales = DType::bf16);

// A dense weight in the format sparse24: of each four inputs of an output the two with the greatest |w| * norms[input]
// stay, as bf16 numbers; of equal ones the first. `norms` [in]: those of the inputs over a text, with which this is
// Wanda (arXiv 2306.11695); empty: the greatest |w|. What is not finite counts as the greatest, so it is not hidden.
// Throws Error unless four divides the inputs.
Weight pruned(const Weight& dense, std::span<const float> norms = {}, const ForShares& shares = {});

// The numbers of row `o`, [in], in the order in which they are stored (Weight::order).
void decode_row(const Weight& w, std::int64_t o, std::span<float> row);
// The same weight as a dense bf16 matrix, with its bias and in its order; its inputs are not rounded.
Weight dequantized(const Weight& w, const ForShares& shares = {});
// A dense weight with its columns in the order of the inputs.
Weight in_input_order(const Weight& dense);

// Whether matrices with the same inputs can be stacked: one format, one group, one order, inputs rounded alike.
bool stackable(std::span<const Weight> parts);
// Such quantized matrices, one above the other, without biases.
Weight stacked(std::span<const Weight> parts);

}  // namespace foretoken

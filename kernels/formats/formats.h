// The formats, a file for each kind of code.
#pragma once
#include "kernels/formats/format.h"

namespace foretoken::formats {

// integers.cpp
const WeightFormat& int8();        // a scale for each output
const WeightFormat& int8_group();  // a scale for each group of inputs
const WeightFormat& int6();        // the same in fewer bits
const WeightFormat& int5();
const WeightFormat& int4();
const WeightFormat& int4_asymmetric();  // with zero points

// tables.cpp
const WeightFormat& nf4();
const WeightFormat& fp4();

// fp8.cpp
const WeightFormat& fp8();         // a scale for each output
const WeightFormat& fp8_tensor();  // one scale
const WeightFormat& fp8_block();   // a scale for each 128 outputs x 128 inputs

// mxfp4.cpp
const WeightFormat& mxfp4();

// sparse24.cpp
const WeightFormat& sparse24();
// One row of pruned(): values [in / 2], kept [(in + 7) / 8]; and back.
void keep_two_of_four(std::span<const float> row, std::span<const float> norms, bf16* values, std::uint8_t* kept);
void spread_two_of_four(const bf16* values, const std::uint8_t* kept, std::span<float> row);

// Numbers of FP8, e4m3: rounded to nearest, of two to the even one; what is beyond 448 becomes 448.
std::uint8_t e4m3_of(float x);
float float_of_e4m3(std::uint8_t code);

}  // namespace foretoken::formats

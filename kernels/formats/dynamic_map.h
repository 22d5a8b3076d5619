// Scales stored in 8 bits, as the double quantization of QLoRA (arXiv 2305.14314) and bitsandbytes has it: their mean
// is subtracted, and in blocks of 256 the rest, divided by the greatest magnitude, becomes the nearest of 256 numbers
// (dynamic tree quantization, arXiv 1511.04561). This module must not know what the scales are of.
#pragma once
#include <array>
#include <span>

namespace foretoken::formats {

// The numbers in ascending order, within [-1, 1]: the bits of bitsandbytes' create_dynamic_map().
const std::array<float, 256>& dynamic_map();

constexpr std::size_t kScalesInABlock = 256;

// The mean of the finite scales.
float mean_of(std::span<const float> scales);
// Replaces every scale by map[code] * greatest + mean, each operation rounded to f32. A scale that is not finite stays.
void round_by_dynamic_map(std::span<float> scales, float mean);

}  // namespace foretoken::formats

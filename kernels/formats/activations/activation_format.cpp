#include "kernels/formats/activations/activation_format.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/error.h"
#include "kernels/formats/formats.h"

namespace foretoken {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The greatest magnitude; NaN where one is not finite. Magnitudes of numbers are ordered as their bits are.
float magnitude_of(std::span<const float> x) {
  float greatest = 0;
  bool finite = true;
  for (const float v : x) {
    const float magnitude = std::abs(v);
    finite &= magnitude <= std::numeric_limits<float>::max();
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  return finite ? greatest : kNan;
}

float set_zero(std::span<float> x, float scale) {
  std::ranges::fill(x, 0.0f);
  return scale;
}

}  // namespace

const std::vector<const ActivationFormat*>& activation_formats() {
  static const std::vector<const ActivationFormat*> all = {&formats::int8_rows(), &formats::int8_rows_outliers(),
                                                           &formats::e4m3_rows()};
  return all;
}

float round_row(const ActivationFormat& format, float input_scale, std::span<float> x, std::vector<Outlier>& apart) {
  for (float& v : x) v = float(bf16(v));
  float magnitude = magnitude_of(x);
  if (std::isnan(magnitude)) return set_zero(x, kNan);
  if (const float least = format.outliers(); least > 0 && magnitude >= least) {
    for (std::size_t i = 0; i < x.size(); ++i)
      if (std::abs(x[i]) >= least) apart.push_back({std::int64_t(i), x[i]}), x[i] = 0;
    magnitude = magnitude_of(x);
  }
  const float scale = input_scale > 0 ? input_scale : magnitude / format.greatest();
  if (scale < std::numeric_limits<float>::min()) return set_zero(x, 0);
  format.round(x, scale);
  return scale;
}

float round_row(const Weight& w, std::span<float> x, std::vector<Outlier>& apart) {
  return round_row(*w.activations, w.input_scale, x, apart);
}

std::int64_t chunk_of(const ActivationFormat& format, std::int64_t group) {
  return format.coding() == Coding::e4m3 ? std::min(group, kChunkInputs) : group;
}

Weight with_activations(Weight w, const ActivationFormat& format, float input_scale) {
  const auto refuse = [&](const std::string& why) {
    throw Error("inputs rounded to " + format.name() + " (" + format.meaning() +
                ") cannot multiply this matrix: " + why);
  };
  if (!w.format || w.format->coding() != format.coding())
    refuse("its weights are " + (w.format ? w.format->name() : "dense") +
           "; choose weights of the same kind, or its weights alone");
  if (w.zeros && format.coding() != Coding::integers) refuse("its groups have zero points; choose its weights alone");
  if (w.minima) refuse("its groups have minima; choose its weights alone");
  const auto of_8_bits = [](float z) { return z == std::nearbyint(z) && z >= -128 && z <= 127; };
  if (w.zeros && !std::ranges::all_of(w.zeros.values<float>(), of_8_bits))
    refuse("its zero points are no integers of 8 bits; choose its weights alone");
  if (w.in > kMostRoundedInputs)
    refuse("its " + std::to_string(w.in) + " inputs are more than " + std::to_string(kMostRoundedInputs) +
           ", of which the sum of integers might not fit 32 bits; choose its weights alone");
  if (!std::isfinite(input_scale) || input_scale < 0)
    refuse("the scale of its inputs is negative or not finite; choose its weights alone");
  w.activations = &format, w.input_scale = input_scale;
  return w;
}

const std::vector<Precision>& precisions() {
  static const std::vector<Precision> all = [] {
    std::vector<Precision> found;
    for (const WeightFormat* f : weight_formats()) found.push_back({f->name(), f, nullptr});
    found.push_back({"w8a8", &formats::int8(), &formats::int8_rows()});
    found.push_back({"w4a8", &formats::int4(), &formats::int8_rows()});
    found.push_back({"fp8_w8a8", &formats::fp8(), &formats::e4m3_rows()});
    found.push_back({"llm_int8", &formats::int8(), &formats::int8_rows_outliers()});
    return found;
  }();
  return all;
}

const Precision* find_precision(const std::string& name) {
  const auto found = std::ranges::find(precisions(), name, &Precision::name);
  return found == precisions().end() ? nullptr : &*found;
}

Weight quantize(const Weight& dense, const Precision& precision, const ForShares& shares, DType scales) {
  Weight w = quantize(dense, *precision.weights, 0, shares, scales);
  return precision.activations ? with_activations(std::move(w), *precision.activations) : w;
}

}  // namespace foretoken

#include "experiments/quantize/smoothing.h"

#include <algorithm>
#include <cmath>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"

namespace foretoken {

std::vector<float> smoothing_scales(std::span<const Weight> dense, std::span<const float> largest, double alpha) {
  std::vector<float> weights(largest.size(), 0.0f);
  for (const Weight& w : dense) {
    const Tensor values = converted(w.values, DType::f32);
    by_all_cores(w.in, w.out, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = 0; o < w.out; ++o)
        for (std::int64_t i = begin; i < end; ++i)
          weights[std::size_t(i)] = std::max(weights[std::size_t(i)], std::abs(values.row<float>(o)[i]));
    });
  }
  std::vector<float> scales;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double s = std::pow(double(largest[i]), alpha) / std::pow(double(weights[i]), 1 - alpha);
    scales.push_back(largest[i] > 0 && weights[i] > 0 ? float(s) : 1.0f);
  }
  return scales;
}

}  // namespace foretoken

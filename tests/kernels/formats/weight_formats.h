// What the tests of weight formats share.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/formats/formats.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {

// Groups of random sizes of numbers, one constant, one of zeros, one far from zero.
inline Tensor weights(std::int64_t in, unsigned seed) {
  const Tensor t = random_tensor({9, in}, seed);
  for (std::int64_t i = 0; i < in; ++i) {
    t.row<float>(1)[i] *= 1e-6f, t.row<float>(2)[i] *= 1e6f;
    t.row<float>(3)[i] = 0.25f, t.row<float>(4)[i] = 0;
    t.row<float>(5)[i] = std::abs(t.row<float>(5)[i]), t.row<float>(6)[i] = -std::abs(t.row<float>(6)[i]);
    t.row<float>(7)[i] = i == 3 ? 5.0f : 1e-3f * t.row<float>(7)[i];  // one outlier
  }
  return t;
}

// The weights of all codes.
inline std::vector<float> weights_of(const WeightFormat& format, GroupScale scale) {
  std::vector<float> all;
  for (const float number : format.numbers()) all.push_back(weight_of(number, scale));
  return all;
}

// The reference, and the CPU with each of its instruction sets, with one thread and with two.
inline std::vector<std::unique_ptr<Backend>> all_host_backends() {
  std::vector<std::unique_ptr<Backend>> all;
  all.push_back(make_reference_backend());
  for (const std::string& instructions : cpu_instructions())
    for (const int threads : {1, 2}) all.push_back(make_cpu_backend(threads, instructions));
  return all;
}

// Codes as files have them: any scales, zero points and minima, groups of several sizes.
inline Weight stored_weight(const WeightFormat& format, const Shape& shape, int group, DType scales, bool zeros,
                            bool minima) {
  std::mt19937 engine(unsigned(group) + 31);
  Weight w;
  w.out = shape[0], w.in = shape[1], w.format = &format, w.group = group;
  w.values = Tensor::host(shape, DType::u8);
  for (std::uint8_t& c : w.values.values<std::uint8_t>()) do
      c = std::uint8_t(engine() % (1u << format.bits()));
    while (std::isnan(format.numbers()[c]));
  const Shape groups{w.out, w.in / group};
  w.scales = random_tensor(groups, engine(), 0.002f);
  for (float& s : w.scales.values<float>()) {
    if (engine() % 17 == 0) s = 0;
    if (scales == DType::f32) s = std::bit_cast<float>(std::bit_cast<std::uint32_t>(s) & ~1u);  // 23 significant bits
    if (scales == DType::bf16) s = float(bf16(s));
    if (scales == DType::f16) s = float_from_f16(std::uint16_t((engine() & 0x87ffu) | 0x2000u));
  }
  if (zeros) w.zeros = Tensor::host(groups, DType::f32);
  if (zeros) std::ranges::generate(w.zeros.values<float>(), [&] { return float(int(engine() % 16) - 8); });
  if (minima) w.minima = random_tensor(groups, engine(), 0.05f);
  return w;
}

// Those with codes and scales: all but 2:4.
inline std::vector<const WeightFormat*> coded_formats() {
  std::vector<const WeightFormat*> all = weight_formats();
  std::erase(all, &formats::sparse24());
  return all;
}

class Formats : public ::testing::TestWithParam<const WeightFormat*> {
 protected:
  const WeightFormat& format = *GetParam();
};

inline std::string name_of_format(const ::testing::TestParamInfo<const WeightFormat*>& info) {
  return info.param->name();
}

}  // namespace foretoken::test

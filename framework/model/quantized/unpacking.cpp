#include "framework/model/quantized/unpacking.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <vector>

#include "framework/model/in_parallel.h"
#include "kernels/formats/formats.h"

namespace foretoken::unpacking {

const WeightFormat& integers(int bits, bool grouped, bool symmetric) {
  if (bits == 8) return grouped ? formats::int8_group() : formats::int8();
  if (bits == 6) return formats::int6();
  if (bits == 5) return formats::int5();
  return symmetric ? formats::int4() : formats::int4_asymmetric();
}

float greatest(const WeightFormat& format, bool zeros) {
  float low = 0, high = 0;
  for (const float number : format.numbers()) low = std::fmin(low, number), high = std::fmax(high, number);  // no NaN
  return zeros ? high - low : std::max(high, -low);
}

Weight empty(const Parts& parts, const WeightFormat& format) {
  Weight w;
  w.out = parts.out, w.in = parts.in, w.format = &format;
  w.values = Tensor::host({w.out, w.in}, DType::u8);
  return w;
}

Weight of_signed(const Parts& parts, const WeightFormat& format, const Tensor& numbers) {
  const int offset = 1 << (format.bits() - 1);
  const auto from = numbers.values<std::int8_t>();
  if (const auto beyond = std::ranges::find_if(from, [&](int n) { return n < -offset || n >= offset; });
      beyond != from.end())
    parts.refuse("weight", "holds " + std::to_string(int(*beyond)) + ", beyond integers of " +
                               std::to_string(format.bits()) + " bits; download the checkpoint again");
  Weight w = empty(parts, format);
  in_parallel(w.out, w.in, [&](std::int64_t begin, std::int64_t end) {
    const auto part = from.subspan(std::size_t(begin * w.in), std::size_t((end - begin) * w.in));
    std::ranges::transform(part, w.values.row<std::uint8_t>(begin), [&](int n) { return std::uint8_t(n + offset); });
  });
  return w;
}

Expanded expanded(const Tensor& blocks, std::int64_t out, std::int64_t in, std::int64_t block_outputs,
                  std::int64_t block_inputs) {
  const std::int64_t group = block_inputs >= in ? in : std::gcd(block_inputs, in);
  const std::int64_t columns = (in + block_inputs - 1) / block_inputs, groups = in / group;
  Expanded e{Tensor::host({out, groups}, DType::f32), int(group)};
  const float* from = blocks.data<float>();
  for (std::int64_t o = 0; o < out; ++o)
    for (std::int64_t g = 0; g < groups; ++g)
      e.values.row<float>(o)[g] = from[o / block_outputs * columns + g * group / block_inputs];
  return e;
}

void set_scales(Weight& w, const Tensor& blocks, std::int64_t block_outputs, std::int64_t block_inputs) {
  const Expanded e = expanded(blocks, w.out, w.in, block_outputs, block_inputs);
  w.scales = e.values, w.group = e.group;
}

Tensor e4m3_codes(const Parts& parts, const std::string& part) {
  const Tensor t = parts.of(part, DType::e4m3, {parts.out, parts.in});
  Tensor codes(t.owner(), t.raw(), t.shape(), DType::u8);
  constexpr int kMagnitude = 0x7f;  // all of its bits: NaN
  std::atomic<bool> nan = false;
  in_parallel(parts.out, parts.in, [&](std::int64_t begin, std::int64_t end) {
    const std::uint8_t *from = codes.row<std::uint8_t>(begin), *to = from + (end - begin) * parts.in;
    if (std::any_of(from, to, [](std::uint8_t code) { return (code & kMagnitude) == kMagnitude; })) nan = true;
  });
  if (nan) parts.refuse(part, "holds a NaN; download the checkpoint again, or quantize anew");
  return codes;
}

bool all_zero(const Tensor& numbers) {
  return std::ranges::all_of(numbers.values<float>(), [](float x) { return x == 0; });
}

Tensor order_of(const Parts& parts, const std::string& part, const Tensor& group_of, std::int64_t group) {
  const auto of = group_of.values<std::int32_t>();
  const std::int64_t groups = parts.in / group;
  std::vector<std::int64_t> members(std::size_t(groups), 0);
  for (const std::int32_t g : of) {
    if (g < 0 || g >= groups)
      parts.refuse(part, "names group " + std::to_string(g) + " of " + std::to_string(groups) +
                             "; download the checkpoint again, or quantize anew");
    ++members[std::size_t(g)];
  }
  for (std::int64_t g = 0; g < groups; ++g)
    if (members[std::size_t(g)] != group)
      parts.refuse(part, "gives group " + std::to_string(g) + " " + std::to_string(members[std::size_t(g)]) +
                             " inputs in place of " + std::to_string(group) +
                             "; download the checkpoint again, or quantize anew");
  if (std::ranges::is_sorted(of)) return {};
  const Tensor order = Tensor::host({parts.in}, DType::i32);
  const auto inputs = order.values<std::int32_t>();
  std::iota(inputs.begin(), inputs.end(), 0);
  std::ranges::stable_sort(inputs, {}, [&](std::int32_t i) { return of[std::size_t(i)]; });
  return order;
}

void reorder(Weight& w, const Tensor& order) {
  if (!order) return;
  w.order = order;
  in_parallel(w.out, w.in, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint8_t> row(std::size_t(w.in));
    for (std::int64_t o = begin; o < end; ++o) {
      auto* codes = w.values.row<std::uint8_t>(o);
      std::copy(codes, codes + w.in, row.begin());
      for (std::int64_t j = 0; j < w.in; ++j) codes[j] = row[std::size_t(order.data<std::int32_t>()[j])];
    }
  });
}

}  // namespace foretoken::unpacking

#include "framework/model/quantized/microscaling.h"

#include <algorithm>
#include <cmath>

#include "framework/model/in_parallel.h"
#include "framework/model/quantized/unpacking.h"
#include "kernels/formats/formats.h"

namespace foretoken::microscaling {

Weight unpack(const Parts& parts, const Tensor& codes, const std::string& scales) {
  return unpack(parts, codes, parts.of(scales, DType::u8, {parts.out, parts.in / kGroup}), scales);
}

Weight unpack(const Parts& parts, const Tensor& codes, const Tensor& exponents, const std::string& scales) {
  Weight w = unpacking::empty(parts, formats::mxfp4());
  w.group = int(kGroup);
  w.scales = Tensor::host({w.out, w.in / kGroup}, DType::f32);
  for (std::int64_t i = 0; i < exponents.elements(); ++i) {
    const int exponent = exponents.data<std::uint8_t>()[i];
    if (exponent == 255) parts.refuse(scales, "holds 255, which means NaN; download the checkpoint again");
    w.scales.data<float>()[i] = std::ldexp(1.0f, exponent - 127);
  }
  parts.expect_finite(scales, w.scales.values<float>(), unpacking::greatest(*w.format, false));
  const auto* bytes = codes.data<std::uint8_t>();
  auto* to = w.values.data<std::uint8_t>();
  in_parallel(w.out, w.in, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * w.in; i < end * w.in; ++i) to[i] = std::uint8_t(bytes[i / 2] >> i % 2 * 4 & 15);
    // A group of zeros may be stored with any exponent; as a scale of 0 it asks no device for a wider range.
    for (std::int64_t g = begin * w.in / kGroup; g < end * w.in / kGroup; ++g)
      if (std::all_of(to + g * kGroup, to + (g + 1) * kGroup, [](std::uint8_t code) { return code % 8 == 0; }))
        w.scales.data<float>()[g] = 0;
  });
  return w;
}

}  // namespace foretoken::microscaling

#include "kernels/cache_codes.h"

#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/formats/activations/activation_format.h"
#include "kernels/formats/formats.h"
#include "kernels/host_backend.h"

namespace foretoken {
namespace {

// Of a number that e4m3 has. The bias of its exponent is 7, that of a float's 127; beneath 2^-6 the code counts 2^-9.
std::uint8_t e4m3_code(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), magnitude = bits & 0x7fffffffu;
  const std::uint32_t small = std::uint32_t(std::bit_cast<float>(magnitude) * 0x1p9f), large = (magnitude >> 20) - 960;
  return std::uint8_t(bits >> 24 & 0x80u) | std::uint8_t(magnitude < 0x3c800000u ? small : large);
}

}  // namespace

float round_head(DType cache, std::span<const float> x, std::byte* codes) {
  std::vector<float> numbers(x.begin(), x.end());
  std::vector<Outlier> none;
  const ActivationFormat& format = cache == DType::i8 ? formats::int8_rows() : formats::e4m3_rows();
  const float scale = round_row(format, 0, numbers, none);
  for (std::size_t i = 0; i < x.size(); ++i)
    codes[i] = std::byte(cache == DType::i8 ? std::uint8_t(std::int8_t(numbers[i])) : e4m3_code(numbers[i]));
  return scale;
}

float number_of(DType cache, std::byte code) {
  static const std::array<float, 256> of_e4m3 = [] {
    std::array<float, 256> all;
    for (std::size_t c = 0; c < all.size(); ++c) all[c] = formats::float_of_e4m3(std::uint8_t(c));
    return all;
  }();
  return cache == DType::i8 ? float(std::int8_t(code)) : of_e4m3[std::size_t(code)];
}

void store_codes(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout, int r,
                 const RoundHead& round) {
  const std::int32_t* table = layout.tables.row<std::int32_t>(layout.owner.data<std::int32_t>()[r]);
  const std::int32_t slot = layout.slots.data<std::int32_t>()[r];
  const auto put = [&](const float* x, std::int64_t codes, std::int64_t scales) {
    std::byte* const to = slot_address(kv, codes, table, slot);
    auto* const scale = reinterpret_cast<float*>(slot_address(kv, KvPlane{scales, 4}, table, slot));
    for (std::int64_t h = 0; h < kv.kv_heads; ++h)
      scale[h * kv.page_rows] =
          round(kv.dtype, {x + h * kv.head_size, std::size_t(kv.head_size)}, to + h * kv.page_rows * kv.head_size);
  };
  put(k.row<float>(r), kv.keys, kv.key_scales);
  if (kv.latent == 0) put(v.row<float>(r), kv.values, kv.value_scales);
}

}  // namespace foretoken

#include "kernels/cpu/packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/error.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

std::int64_t panel_bytes(const PackedWeight& p) {
  const std::int64_t numbers = (p.packing == Packing::quads8 ? p.groups * p.padded_group() : p.inputs) * kPanel;
  return p.packing == Packing::f32      ? 4 * numbers
         : p.packing == Packing::bf16   ? 2 * numbers
         : p.packing == Packing::codes4 ? numbers / 2
                                        : numbers;
}

// Copies outputs of one panel, item(o, k) -> T, to [inputs][kPanel]; outputs beyond the last remain zero.
template <class T, class Item>
void fill_panel(T* to, std::int64_t panel, std::int64_t out, std::int64_t in, const Item& item) {
  const std::int64_t begin = panel * kPanel, end = std::min(out, begin + kPanel);
  for (std::int64_t o = begin; o < end; ++o)
    for (std::int64_t k = 0; k < in; ++k) to[k * kPanel + (o - begin)] = item(o, k);
}

void fill_pairs(std::uint16_t* to, std::int64_t panel, const Weight& w) {
  const std::int64_t begin = panel * kPanel, end = std::min(w.out, begin + kPanel);
  for (std::int64_t o = begin; o < end; ++o) {
    const std::uint16_t* from = w.values.row<std::uint16_t>(o);
    for (std::int64_t k = 0; k < w.in; ++k) to[(k / 2 * kPanel + (o - begin)) * 2 + k % 2] = from[k];
  }
}

std::int64_t place_in_quads(const PackedWeight& p, std::int64_t column, std::int64_t k) {
  const std::int64_t padded = k / p.group * p.padded_group() + k % p.group;
  return (padded / 4 * kPanel + column) * 4 + padded % 4;
}

// See Codes.
void fill_codes(const Weight& w, const PackedWeight& p, std::int64_t panel) {
  auto* to = static_cast<std::uint8_t*>(p.data.get()) + panel * panel_bytes(p);
  const auto code = [&](std::int64_t o, std::int64_t k) { return w.values.row<std::uint8_t>(o)[k]; };
  if (p.packing == Packing::quads8) {
    for (std::int64_t o = panel * kPanel; o < std::min(w.out, (panel + 1) * kPanel); ++o)
      for (std::int64_t k = 0; k < w.in; ++k) to[place_in_quads(p, o % kPanel, k)] = code(o, k);
    return;
  }
  if (p.packing != Packing::codes4) return fill_panel(to, panel, w.out, w.in, code);
  for (std::int64_t o = panel * kPanel; o < std::min(w.out, (panel + 1) * kPanel); ++o)
    for (std::int64_t k = 0; k < w.in; k += kBlockInputs) {
      const std::uint8_t* from = w.values.row<std::uint8_t>(o) + k;
      std::uint8_t* block = to + k * kPanel / 2 + o % kPanel * 16;
      for (int j = 0; j < 16; ++j) block[j] = std::uint8_t(from[j] | from[16 + j] << 4);
    }
}

constexpr float kE4m3Scale = 256;  // see Codes

void fill_scales(const Weight& w, const PackedWeight& p, std::int64_t panel) {
  const auto put = [&](const Tensor& from, const std::shared_ptr<void>& to) {
    if (from)
      fill_panel(static_cast<float*>(to.get()) + panel * p.groups * kPanel, panel, w.out, p.groups,
                 [&](std::int64_t o, std::int64_t g) { return from.row<float>(o)[g]; });
  };
  put(w.scales, p.scales), put(w.zeros, p.zeros), put(w.minima, p.minima);
  if (p.packing != Packing::e4m3) return;
  float* scales = static_cast<float*>(p.scales.get()) + panel * p.groups * kPanel;
  for (std::int64_t i = 0; i < p.groups * kPanel; ++i) scales[i] *= kE4m3Scale;
  // Products do not know a code that is NaN. Where inputs are rounded, it makes all products of its group NaN.
  for (std::int64_t o = panel * kPanel; o < std::min(w.out, (panel + 1) * kPanel); ++o)
    for (std::int64_t k = 0; k < w.in; ++k)
      if ((w.values.row<std::uint8_t>(o)[k] & 0x7f) == 0x7f)
        scales[k / p.group * kPanel + o % kPanel] = std::numeric_limits<float>::quiet_NaN();
}

void fill(const Weight& w, const PackedWeight& p, std::int64_t panel) {
  const std::int64_t at = panel * p.inputs * kPanel;
  if (!p.dense()) {
    fill_codes(w, p, panel);
    fill_scales(w, p, panel);
  } else if (p.packing == Packing::bf16) {
    fill_pairs(static_cast<std::uint16_t*>(p.data.get()) + at, panel, w);
  } else if (w.values.dtype() == DType::f16) {
    fill_panel(static_cast<float*>(p.data.get()) + at, panel, w.out, w.in,
               [&](std::int64_t o, std::int64_t k) { return float_from_f16(w.values.row<std::uint16_t>(o)[k]); });
  } else {
    fill_panel(static_cast<float*>(p.data.get()) + at, panel, w.out, w.in,
               [&](std::int64_t o, std::int64_t k) { return w.values.row<float>(o)[k]; });
  }
}

// Of input k of an output: the inverse of fill_codes.
std::uint8_t code_of(const PackedWeight& p, const std::uint8_t* panel, std::int64_t column, std::int64_t k) {
  if (p.packing == Packing::quads8) return panel[place_in_quads(p, column, k)];
  if (p.packing != Packing::codes4) return panel[k * kPanel + column];
  const std::int64_t within = k % kBlockInputs;
  const std::uint8_t both = panel[(k - within) * kPanel / 2 + column * 16 + within % 16];
  return within < 16 ? both & 15 : both >> 4;
}

// Whether no code is NaN and no scale so large that it must not be multiplied once more.
bool plain_e4m3(const Weight& w) {
  const auto codes = w.values.values<std::uint8_t>();
  return !w.zeros && !w.minima && std::ranges::none_of(codes, [](std::uint8_t c) { return (c & 0x7f) == 0x7f; }) &&
         std::ranges::all_of(w.scales.values<float>(), [](float s) { return std::abs(s) < 0x1p100f; });
}

bool exact_integers(const Weight& w) {
  return w.format->coding() == Coding::integers && !w.minima &&
         std::ranges::all_of(w.scales.values<float>(), [](float s) {
           std::uint32_t bits;
           std::memcpy(&bits, &s, sizeof bits);
           return (bits & 0x1ffu) == 0 && (s == 0 || (std::abs(s) > 0x1p-100f && std::abs(s) < 0x1p100f));
         });
}

// bf16: the products of this backend do not read the codes of such a weight. Those with rounded inputs read all.
Packing packing_of(const Weight& w) {
  if (!w.format) {
    const DType dtype = w.values.dtype();
    if (dtype == DType::bf16) return Packing::bf16;
    if (dtype == DType::f32 || dtype == DType::f16) return Packing::f32;
    throw Error(std::string("a weight holds ") + name_of(dtype) + " numbers; F32, F16 and BF16 are supported");
  }
  if (w.format->bits() == 4 && w.group % kBlockInputs == 0) return Packing::codes4;
  if (w.activations) return w.format->coding() == Coding::integers ? Packing::quads8 : Packing::e4m3;
  if (w.group % 2 != 0) return Packing::bf16;
  if (w.format->coding() == Coding::integers) return Packing::integers8;
  return w.format->coding() == Coding::e4m3 && plain_e4m3(w) ? Packing::e4m3 : Packing::bf16;
}

}  // namespace

std::int64_t PackedWeight::bytes() const {
  const int parts = bool(scales) + bool(zeros) + bool(minima);
  return panels * panel_bytes(*this) + parts * scale_bytes();
}

std::int64_t PackedWeight::scale_bytes() const { return panels * groups * kPanel * std::int64_t(sizeof(float)); }

Codes PackedWeight::codes() const {
  const auto numbers = [](const std::shared_ptr<void>& p) { return static_cast<const float*>(p.get()); };
  return {static_cast<const std::byte*>(data.get()),
          format->numbers().data(),
          numbers(scales),
          numbers(zeros),
          numbers(minima),
          float(1 << (format->bits() - 1)),
          exact,
          groups,
          group,
          inputs};
}

PackedWeight pack(const Weight& stored, WeightMemory& memory, ThreadPool& pool) {
  PackedWeight p;
  p.packing = packing_of(stored);
  const Weight w = p.dense()
                       ? dequantized(stored,
                                     [&](std::int64_t n, std::int64_t, const auto& f) {
                                       const std::int64_t shares = std::min<std::int64_t>(n, 4 * pool.threads());
                                       pool.run(int(shares), [&](int i) { f(n * i / shares, n * (i + 1) / shares); });
                                     })
                       : stored;
  if (w.order) p.order.assign(w.order.values<std::int32_t>().begin(), w.order.values<std::int32_t>().end());
  p.out = w.out, p.in = p.inputs = w.in;
  p.panels = (w.out + kPanel - 1) / kPanel;
  if (p.packing == Packing::bf16) p.inputs = (w.in + 1) / 2 * 2;
  if (!p.dense()) {
    p.format = w.format, p.group = w.group, p.groups = int(w.in / w.group);
    p.exact = exact_integers(w);
    p.activations = w.activations, p.input_scale = w.input_scale;
    const std::size_t bytes = std::size_t(p.scale_bytes());
    p.scales = memory.allocate(bytes);
    if (w.zeros) p.zeros = memory.allocate(bytes);
    if (w.minima) p.minima = memory.allocate(bytes);
  }
  p.data = memory.allocate(std::size_t(p.panels * panel_bytes(p)));
  pool.run(int(p.panels), [&](int panel) { fill(w, p, panel); });
  return p;
}

namespace {

// The scales of group g of an output, by its panel and its column there.
GroupScale scale_of(const PackedWeight& w, std::int64_t panel, std::int64_t g, std::int64_t column) {
  const auto part = [&](const std::shared_ptr<void>& p) {
    return p ? static_cast<const float*>(p.get())[(panel * w.groups + g) * kPanel + column] : 0.0f;
  };
  GroupScale s{part(w.scales), part(w.zeros), part(w.minima)};
  if (w.packing == Packing::e4m3) s.scale /= kE4m3Scale;
  return s;
}

const std::uint8_t* codes_of(const PackedWeight& w, std::int64_t panel) {
  return static_cast<const std::uint8_t*>(w.data.get()) + panel * panel_bytes(w);
}

}  // namespace

void unpack_input(const PackedWeight& w, std::int64_t panel, std::int64_t k, float* outputs) {
  const std::span<const float> numbers = w.format->numbers();
  for (std::int64_t column = 0; column < kPanel; ++column)
    outputs[column] =
        weight_of(numbers[code_of(w, codes_of(w, panel), column, k)], scale_of(w, panel, k / w.group, column));
}

void unpack_row(const PackedWeight& w, std::int64_t o, float* row) {
  const std::int64_t panel = o / kPanel, column = o % kPanel;
  const std::uint8_t* data = codes_of(w, panel);
  if (!w.order.empty()) throw Error("the rows of a weight with columns in another order are not readable as a table");
  if (w.packing == Packing::f32) {
    for (std::int64_t k = 0; k < w.in; ++k) row[k] = reinterpret_cast<const float*>(data)[k * kPanel + column];
    return;
  }
  if (w.packing == Packing::bf16) {
    const auto* pairs = reinterpret_cast<const bf16*>(data);
    for (std::int64_t k = 0; k < w.in; ++k) row[k] = float(pairs[(k / 2 * kPanel + column) * 2 + k % 2]);
    return;
  }
  const std::span<const float> numbers = w.format->numbers();
  for (std::int64_t g = 0; g < w.groups; ++g) {
    const GroupScale s = scale_of(w, panel, g, column);
    for (std::int64_t k = g * w.group; k < (g + 1) * w.group; ++k)
      row[k] = weight_of(numbers[code_of(w, data, column, k)], s);
  }
}

}  // namespace foretoken

#include "kernels/cpu/packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/error.h"
#include "kernels/formats/activations/activation_format.h"
#include "kernels/formats/formats.h"

namespace foretoken {
namespace {

// Bytes of two numbers.
int bytes_of_two(Packing packing) {
  switch (packing) {
    case Packing::f32:
      return 8;
    case Packing::bf16:
    case Packing::bf16_octets:
      return 4;
    case Packing::codes4:
    case Packing::codes4_octets:
    case Packing::quads4:
      return 1;
    default:
      return 2;
  }
}

// Copies outputs of one panel, item(o, k) -> T, to [inputs][kPanel]; outputs beyond the last remain zero.
template <class T, class Item>
void fill_panel(T* to, std::int64_t panel, std::int64_t out, std::int64_t in, const Item& item) {
  const std::int64_t begin = panel * kPanel, end = std::min(out, begin + kPanel);
  for (std::int64_t o = begin; o < end; ++o)
    for (std::int64_t k = 0; k < in; ++k) to[k * kPanel + (o - begin)] = item(o, k);
}

// Where a panel holds input k of an output, in numbers.
std::int64_t place_in_pairs(std::int64_t column, std::int64_t k) { return (k / 2 * kPanel + column) * 2 + k % 2; }

// Of the chunk that holds input k.
struct OctetChunk {
  std::int64_t begin, inputs;
};
OctetChunk chunk_of(const PackedWeight& p, std::int64_t k) {
  const std::int64_t begin = k / kOctetChunk * kOctetChunk;
  return {begin, std::min(kOctetChunk, p.inputs - begin)};
}

std::int64_t place_in_octets(const PackedWeight& p, std::int64_t column, std::int64_t k) {
  const auto [begin, inputs] = chunk_of(p, k);
  const std::int64_t octet = column / kStrip * (inputs / kOctetInputs) + (k - begin) / kOctetInputs;
  return begin * kPanel + (octet * kStrip + column % kStrip) * kOctetInputs + k % kOctetInputs;
}

void fill_bf16(std::uint16_t* to, std::int64_t panel, const Weight& w, const PackedWeight& p) {
  const std::int64_t begin = panel * kPanel, end = std::min(w.out, begin + kPanel);
  for (std::int64_t o = begin; o < end; ++o) {
    const std::uint16_t* from = w.values.row<std::uint16_t>(o);
    for (std::int64_t k = 0; k < w.in; ++k)
      to[p.packing == Packing::bf16 ? place_in_pairs(o - begin, k) : place_in_octets(p, o - begin, k)] = from[k];
  }
}

std::int64_t place_in_quads(const PackedWeight& p, std::int64_t column, std::int64_t k) {
  const std::int64_t padded = k / p.group * p.padded_group() + k % p.group;
  return (padded / 4 * kPanel + column) * 4 + padded % 4;
}

// Of codes of 4 bits: a byte, and whether its upper half.
struct Nibble {
  std::int64_t byte;
  bool upper;
};
Nibble place_of_nibble(const PackedWeight& p, std::int64_t column, std::int64_t k) {
  if (p.packing == Packing::quads4) return {(k / 8 * kPanel + column) * 4 + k % 4, k % 8 >= 4};
  const bool upper = k % kBlockInputs >= 16;
  if (p.packing == Packing::codes4) return {(k / kBlockInputs * kPanel + column) * 16 + k % 16, upper};
  const auto [begin, inputs] = chunk_of(p, k);
  const std::int64_t block = column / kStrip * (inputs / kBlockInputs) + (k - begin) / kBlockInputs;
  const std::int64_t word = begin * kPanel / 2 + (block * kStrip + column % kStrip) * 16 + k % 8 * 2;
  return {word + (upper ? 1 : 0), k % 16 >= 8};
}

// Of codes of more than 4 bits.
std::int64_t place_of_code(const PackedWeight& p, std::int64_t column, std::int64_t k) {
  if (p.packing == Packing::quads8) return place_in_quads(p, column, k);
  if (p.packing == Packing::integers8 || p.packing == Packing::e4m3) return k * kPanel + column;
  const std::int64_t place = place_in_octets(p, column, k);
  if (p.packing == Packing::e4m3_octets) return place;
  return place / 64 * 64 + (column % 2 * 8 + k % 8) * 4 + column % kStrip / 2;
}

// Where a panel holds eight inputs of an output of a sparse packing, from input k on: bytes of the numbers of the first
// four, from there to those of the second, and the bits.
struct SparseEight {
  std::int64_t numbers, between, bits;
};
SparseEight place_of_eight(const PackedWeight& p, std::int64_t column, std::int64_t k) {
  if (p.packing == Packing::sparse) {
    const std::int64_t at = k / 8 * kSparseEight;
    return {at + column * 4, kSparsePairs, at + 2 * kSparsePairs + column};
  }
  const auto [begin, inputs] = chunk_of(p, k);
  constexpr std::int64_t kOctet = kSparseEight * kStrip / kPanel;
  const std::int64_t octet = column / kStrip * (inputs / kOctetInputs) + (k - begin) / kOctetInputs,
                     at = begin / kOctetInputs * kSparseEight + octet * kOctet, output = column % kStrip;
  return {at + output * 8, 4, at + kStrip * 8 + output};
}

void fill_sparse(const Weight& w, const PackedWeight& p, std::int64_t panel) {
  auto* to = static_cast<std::byte*>(p.data.get()) + panel * p.panel_bytes();
  for (std::int64_t o = panel * kPanel; o < std::min(w.out, (panel + 1) * kPanel); ++o) {
    const bf16* from = w.values.row<bf16>(o);
    for (std::int64_t k = 0; k < w.in; k += 8, from += 4) {
      const auto [numbers, between, bits] = place_of_eight(p, o % kPanel, k);
      const bool whole = k + 4 < w.in;
      std::memcpy(to + numbers, from, 4);
      if (whole) std::memcpy(to + numbers + between, from + 2, 4);
      to[bits] = std::byte(w.kept.row<std::uint8_t>(o)[k / 8] | (whole ? 0 : 0x30));  // two of four, also of padding
    }
  }
}

void unpack_sparse_row(const PackedWeight& w, std::int64_t o, float* row) {
  const auto* from = static_cast<const std::byte*>(w.data.get()) + o / kPanel * w.panel_bytes();
  for (std::int64_t k = 0; k < w.in; k += 8) {
    const auto [numbers, between, bits] = place_of_eight(w, o % kPanel, k);
    bf16 values[4];
    std::memcpy(values, from + numbers, 4);
    std::memcpy(values + 2, from + numbers + between, 4);
    const std::uint8_t kept = std::to_integer<std::uint8_t>(from[bits]);
    formats::spread_two_of_four(values, &kept, {row + k, std::size_t(std::min<std::int64_t>(8, w.in - k))});
  }
}

// What codes are more as integers8_octets, where 128 is zero.
int code_bias(const PackedWeight& p) {
  return p.packing == Packing::integers8_octets ? 128 - (1 << (p.format->bits() - 1)) : 0;
}

// See Codes.
void fill_codes(const Weight& w, const PackedWeight& p, std::int64_t panel) {
  auto* to = static_cast<std::uint8_t*>(p.data.get()) + panel * p.panel_bytes();
  for (std::int64_t o = panel * kPanel; o < std::min(w.out, (panel + 1) * kPanel); ++o) {
    const std::uint8_t* from = w.values.row<std::uint8_t>(o);
    if (bytes_of_two(p.packing) == 1)
      for (std::int64_t k = 0; k < w.in; ++k) {
        const Nibble place = place_of_nibble(p, o % kPanel, k);
        to[place.byte] = std::uint8_t(to[place.byte] | from[k] << (place.upper ? 4 : 0));
      }
    else
      for (std::int64_t k = 0; k < w.in; ++k)
        to[place_of_code(p, o % kPanel, k)] = std::uint8_t(from[k] + code_bias(p));
  }
}

constexpr float kE4m3Scale = 256;  // see Codes
bool of_e4m3(const PackedWeight& p) { return p.packing == Packing::e4m3 || p.packing == Packing::e4m3_octets; }

void fill_scales(const Weight& w, const PackedWeight& p, std::int64_t panel) {
  const auto put = [&](const Tensor& from, const std::shared_ptr<void>& to) {
    if (from)
      fill_panel(static_cast<float*>(to.get()) + panel * p.groups * kPanel, panel, w.out, p.groups,
                 [&](std::int64_t o, std::int64_t g) { return from.row<float>(o)[g]; });
  };
  put(w.scales, p.scales), put(w.zeros, p.zeros), put(w.minima, p.minima);
  if (!of_e4m3(p)) return;
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
  if (p.sparse()) {
    fill_sparse(w, p, panel);
  } else if (!p.dense()) {
    fill_codes(w, p, panel);
    fill_scales(w, p, panel);
  } else if (p.packing != Packing::f32) {
    fill_bf16(static_cast<std::uint16_t*>(p.data.get()) + at, panel, w, p);
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
  if (bytes_of_two(p.packing) != 1) return std::uint8_t(panel[place_of_code(p, column, k)] - code_bias(p));
  const Nibble place = place_of_nibble(p, column, k);
  return place.upper ? panel[place.byte] >> 4 : panel[place.byte] & 15;
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
  if (w.kept) return Packing::sparse;
  if (w.format->bits() == 4 && w.group % kBlockInputs == 0) return w.activations ? Packing::quads4 : Packing::codes4;
  if (w.activations) return w.format->coding() == Coding::integers ? Packing::quads8 : Packing::e4m3;
  if (w.group % 2 != 0) return Packing::bf16;
  if (w.format->coding() == Coding::integers) return Packing::integers8;
  return w.format->coding() == Coding::e4m3 && plain_e4m3(w) ? Packing::e4m3 : Packing::bf16;
}

Packing in_octets(Packing packing, const Weight& w) {
  if (packing == Packing::f32 || w.activations) return packing;
  if (packing == Packing::sparse) return Packing::sparse_octets;
  if (packing == Packing::codes4) return Packing::codes4_octets;
  if (packing == Packing::bf16 || w.group % kOctetInputs != 0) return Packing::bf16_octets;
  return packing == Packing::e4m3 ? Packing::e4m3_octets : Packing::integers8_octets;
}

}  // namespace

std::int64_t PackedWeight::panel_bytes() const {
  if (sparse()) return inputs / 8 * kSparseEight;
  return (packing == Packing::quads8 ? groups * padded_group() : inputs) * kPanel * bytes_of_two(packing) / 2;
}

std::int64_t PackedWeight::bytes() const {
  const int parts = bool(scales) + bool(zeros) + bool(minima);
  return panels * panel_bytes() + parts * scale_bytes();
}

std::int64_t PackedWeight::scale_bytes() const { return panels * groups * kPanel * std::int64_t(sizeof(float)); }

Codes PackedWeight::codes() const {
  if (sparse()) {
    Codes all{};
    all.codes = static_cast<const std::byte*>(data.get()), all.inputs = inputs;
    return all;
  }
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

PackedWeight pack(const Weight& stored, bool octets, WeightMemory& memory, ThreadPool& pool) {
  PackedWeight p;
  p.packing = octets ? in_octets(packing_of(stored), stored) : packing_of(stored);
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
  if (p.packing == Packing::bf16_octets || p.sparse())
    p.inputs = (w.in + kOctetInputs - 1) / kOctetInputs * kOctetInputs;
  if (!p.dense() && !p.sparse()) {
    p.format = w.format, p.group = w.group, p.groups = int(w.in / w.group);
    p.exact = exact_integers(w);
    p.activations = w.activations, p.input_scale = w.input_scale;
    const std::size_t bytes = std::size_t(p.scale_bytes());
    p.scales = memory.allocate(bytes);
    if (w.zeros) p.zeros = memory.allocate(bytes);
    if (w.minima) p.minima = memory.allocate(bytes);
  }
  p.data = memory.allocate(std::size_t(p.panels * p.panel_bytes()));
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
  if (of_e4m3(w)) s.scale /= kE4m3Scale;
  return s;
}

const std::uint8_t* codes_of(const PackedWeight& w, std::int64_t panel) {
  return static_cast<const std::uint8_t*>(w.data.get()) + panel * w.panel_bytes();
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
  if (w.sparse()) return unpack_sparse_row(w, o, row);
  if (w.packing == Packing::f32) {
    for (std::int64_t k = 0; k < w.in; ++k) row[k] = reinterpret_cast<const float*>(data)[k * kPanel + column];
    return;
  }
  if (w.dense()) {
    const auto* numbers = reinterpret_cast<const bf16*>(data);
    for (std::int64_t k = 0; k < w.in; ++k)
      row[k] = float(numbers[w.packing == Packing::bf16 ? place_in_pairs(column, k) : place_in_octets(w, column, k)]);
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

#include "kernels/cpu/packing.h"

#include <algorithm>
#include <cstring>

#include "kernels/error.h"

namespace foretoken {
namespace {

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

void allocate_scales(const Weight& w, WeightMemory& memory, PackedWeight& p) {
  p.group = w.group, p.groups = int(w.in / w.group);
  const std::size_t scales = std::size_t(p.panels * p.groups * kPanel) * sizeof(float);
  p.scales = memory.allocate(scales);
  p.zeros = memory.allocate(scales);
}

void fill_scales(const Weight& w, const PackedWeight& p, std::int64_t panel) {
  const std::int64_t at = panel * p.groups * kPanel;
  fill_panel(static_cast<float*>(p.scales.get()) + at, panel, w.out, p.groups,
             [&](std::int64_t o, std::int64_t g) { return w.scales.row<float>(o)[g]; });
  if (w.zeros)
    fill_panel(static_cast<float*>(p.zeros.get()) + at, panel, w.out, p.groups,
               [&](std::int64_t o, std::int64_t g) { return w.zeros.row<float>(o)[g]; });
}

void fill(const Weight& w, const PackedWeight& p, std::int64_t panel) {
  const std::int64_t at = panel * p.inputs * kPanel;
  if (p.packing == Packing::int8) {
    fill_scales(w, p, panel);
    fill_panel(static_cast<std::int8_t*>(p.data.get()) + at, panel, w.out, w.in,
               [&](std::int64_t o, std::int64_t k) { return w.values.row<std::int8_t>(o)[k]; });
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

std::int64_t item_bytes(Packing packing) { return packing == Packing::f32 ? 4 : packing == Packing::bf16 ? 2 : 1; }

}  // namespace

std::int64_t PackedWeight::bytes() const {
  return panels * kPanel * (inputs * item_bytes(packing) + groups * 2 * std::int64_t(sizeof(float)));
}

PackedWeight pack(const Weight& w, WeightMemory& memory, ThreadPool& pool) {
  PackedWeight p;
  p.out = w.out, p.in = p.inputs = w.in;
  p.panels = (w.out + kPanel - 1) / kPanel;
  const DType dtype = w.values.dtype();
  if (w.format == Weight::Format::int8_groups) {
    p.packing = Packing::int8;
  } else if (dtype == DType::bf16) {
    p.packing = Packing::bf16;
    p.inputs = (w.in + 1) / 2 * 2;
  } else if (dtype != DType::f32 && dtype != DType::f16) {
    throw Error(std::string("a weight holds ") + name_of(dtype) + " numbers; F32, F16 and BF16 are supported");
  }
  p.data = memory.allocate(std::size_t(p.panels * kPanel * p.inputs * item_bytes(p.packing)));
  if (p.packing == Packing::int8) allocate_scales(w, memory, p);
  pool.run(int(p.panels), [&](int panel) { fill(w, p, panel); });
  return p;
}

}  // namespace foretoken

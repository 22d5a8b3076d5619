#include "kernels/formats/format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/error.h"
#include "kernels/formats/formats.h"

namespace foretoken {
namespace {

void read_row(const Tensor& t, std::int64_t o, std::span<float> row) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (t.dtype() == DType::bf16)
      row[i] = float(t.row<bf16>(o)[i]);
    else
      row[i] = t.dtype() == DType::f16 ? float_from_f16(t.row<std::uint16_t>(o)[i]) : t.row<float>(o)[i];
  }
}

void divided(std::int64_t n, std::int64_t work, const ForShares& shares,
             const std::function<void(std::int64_t, std::int64_t)>& f) {
  if (shares)
    shares(n, work, f);
  else
    f(0, n);
}

GroupScale scale_of(const Weight& w, std::int64_t o, std::int64_t g) {
  const auto part = [&](const Tensor& t) { return t ? t.row<float>(o)[g] : 0.0f; };
  return {w.scales.row<float>(o)[g], part(w.zeros), part(w.minima)};
}

// The fitted scales of all blocks, in their order.
std::vector<GroupScale> fitted(const Weight& dense, const WeightFormat& format, Block block, const ForShares& shares,
                               DType type) {
  const std::int64_t bands = (dense.out + block.outputs - 1) / block.outputs, groups = dense.in / block.inputs;
  std::vector<GroupScale> scales(std::size_t(bands * groups));
  divided(bands, block.outputs * dense.in, shares, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(dense.in));
    std::vector<Extremes> of(static_cast<std::size_t>(groups));
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t first = b * block.outputs, last = std::min(dense.out, first + block.outputs);
      for (std::int64_t o = first; o < last; ++o) {
        read_row(dense.values, o, row);
        for (std::size_t g = 0; g < of.size(); ++g) {
          const Extremes e = extremes(std::span(row).subspan(g * std::size_t(block.inputs), std::size_t(block.inputs)));
          of[g] = o == first ? e : Extremes{std::min(of[g].low, e.low), std::max(of[g].high, e.high)};
          if (std::isnan(e.low)) of[g] = {e.low, e.low};
          if (std::isnan(of[g].low)) of[g].high = of[g].low;
        }
      }
      for (std::size_t g = 0; g < of.size(); ++g) scales[std::size_t(b * groups) + g] = format.fit(of[g], type);
    }
  });
  std::vector<float> alone;
  for (const GroupScale& s : scales) alone.push_back(s.scale);
  format.round_scales(alone);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i].scale = alone[i];
  return scales;
}

// Memory for the codes and scales of `out` outputs, as `like` has them.
Weight unfilled(const Weight& like, std::int64_t out, bool zeros, bool minima) {
  Weight w;
  w.out = out, w.in = like.in, w.group = like.group, w.format = like.format, w.order = like.order;
  w.activations = like.activations, w.input_scale = like.input_scale;
  const Shape groups{out, like.in / like.group};
  if (like.kept) {
    w.values = Tensor::host({out, like.in / 2}, DType::bf16);
    w.kept = Tensor::host({out, (like.in + 7) / 8}, DType::u8);
    return w;
  }
  w.values = Tensor::host({out, like.in}, DType::u8);
  w.scales = Tensor::host(groups, DType::f32);
  if (zeros) w.zeros = Tensor::host(groups, DType::f32);
  if (minima) w.minima = Tensor::host(groups, DType::f32);
  return w;
}

bool same_order(const Tensor& a, const Tensor& b) {
  return bool(a) == bool(b) && (!a || std::ranges::equal(a.values<std::int32_t>(), b.values<std::int32_t>()));
}

}  // namespace

Extremes extremes(std::span<const float> weights) {
  Extremes e{weights[0], weights[0]};
  for (const float v : weights) {
    if (std::isnan(v)) return {v, v};
    e.low = std::min(e.low, v), e.high = std::max(e.high, v);
  }
  return e;
}

const std::vector<const WeightFormat*>& weight_formats() {
  static const std::vector<const WeightFormat*> all = {
      &formats::int8(),    &formats::int8_group(),      &formats::int6(),      &formats::int5(),
      &formats::int4(),    &formats::int4_asymmetric(), &formats::nf4(),       &formats::fp4(),
      &formats::fp8(),     &formats::fp8_tensor(),      &formats::fp8_block(), &formats::mxfp4(),
      &formats::sparse24()};
  return all;
}

const WeightFormat* find_format(const std::string& name) {
  for (const WeightFormat* f : weight_formats())
    if (f->name() == name) return f;
  return nullptr;
}

Block blocks_of(const WeightFormat& format, std::int64_t out, std::int64_t in, int group, const std::string& what,
                const std::string& remedy) {
  const Block block = group > 0 ? Block{1, group} : format.block(out, in);
  if (block.inputs > 0 && in % block.inputs == 0) return block;
  throw Error(what + " of " + std::to_string(in) + " inputs does not divide into groups" +
              (group > 0 ? " of " + std::to_string(group) : "") + " of the format " + format.name() + " (" +
              format.meaning() + "); " + remedy);
}

Weight quantize(const Weight& dense, const WeightFormat& format, int group, const ForShares& shares, DType type) {
  const Block block = blocks_of(format, dense.out, dense.in, group);
  if (format.coding() == Coding::sparse) return pruned(dense, {}, shares);
  const std::vector<GroupScale> scales = fitted(dense, format, block, shares, type);
  const bool zeros = std::ranges::any_of(scales, [](const GroupScale& s) { return s.zero != 0; });
  Weight like;
  like.in = dense.in, like.format = &format, like.group = int(block.inputs), like.order = dense.order;
  Weight w = unfilled(like, dense.out, zeros, false);
  w.bias = dense.bias;
  const std::int64_t groups = w.in / w.group;
  divided(w.out, w.in, shares, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(w.in));
    for (std::int64_t o = begin; o < end; ++o) {
      read_row(dense.values, o, row);
      for (std::int64_t g = 0; g < groups; ++g) {
        const GroupScale s = scales[std::size_t(o / block.outputs * groups + g)];
        format.encode(std::span(row).subspan(std::size_t(g * w.group), std::size_t(w.group)), s,
                      w.values.row<std::uint8_t>(o) + g * w.group);
        w.scales.row<float>(o)[g] = s.scale;
        if (zeros) w.zeros.row<float>(o)[g] = s.zero;
      }
    }
  });
  return w;
}

Weight pruned(const Weight& dense, std::span<const float> norms, const ForShares& shares) {
  if (!norms.empty() && std::int64_t(norms.size()) != dense.in)
    throw Error("a matrix is pruned with " + std::to_string(norms.size()) + " norms, but has " +
                std::to_string(dense.in) + " inputs; give one for each");
  Weight w;
  w.format = &formats::sparse24();
  w.group = int(blocks_of(*w.format, dense.out, dense.in).inputs);
  w.out = dense.out, w.in = dense.in, w.order = dense.order, w.bias = dense.bias;
  w.values = Tensor::host({w.out, w.in / 2}, DType::bf16);
  w.kept = Tensor::host({w.out, (w.in + 7) / 8}, DType::u8);
  divided(w.out, w.in, shares, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(w.in));
    for (std::int64_t o = begin; o < end; ++o) {
      read_row(dense.values, o, row);
      formats::keep_two_of_four(row, norms, w.values.row<bf16>(o), w.kept.row<std::uint8_t>(o));
    }
  });
  return w;
}

void decode_row(const Weight& w, std::int64_t o, std::span<float> row) {
  if (w.kept) return formats::spread_two_of_four(w.values.row<bf16>(o), w.kept.row<std::uint8_t>(o), row);
  const std::span<const float> numbers = w.format->numbers();
  const std::uint8_t* codes = w.values.row<std::uint8_t>(o);
  for (std::int64_t g = 0; g < w.in / w.group; ++g) {
    const GroupScale s = scale_of(w, o, g);
    for (std::int64_t i = g * w.group; i < (g + 1) * w.group; ++i)
      row[std::size_t(i)] = weight_of(numbers[codes[i]], s);
  }
}

Weight dequantized(const Weight& w, const ForShares& shares) {
  if (!w.format) return w;
  Weight dense = Weight::dense(Tensor::host({w.out, w.in}, DType::bf16));
  dense.bias = w.bias, dense.order = w.order;
  divided(w.out, w.in, shares, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(w.in));
    for (std::int64_t o = begin; o < end; ++o) {
      decode_row(w, o, row);
      std::ranges::transform(row, dense.values.row<bf16>(o), [](float x) { return bf16(x); });
    }
  });
  return dense;
}

Weight in_input_order(const Weight& dense) {
  if (!dense.order) return dense;
  Weight w = dense;
  w.order = {}, w.values = Tensor::host({w.out, w.in}, dense.values.dtype());
  const std::int64_t size = size_of(w.values.dtype());
  for (std::int64_t o = 0; o < w.out; ++o)
    for (std::int64_t j = 0; j < w.in; ++j)
      std::memcpy(w.values.data<char>() + (o * w.in + dense.order.data<std::int32_t>()[j]) * size,
                  dense.values.data<char>() + (o * dense.values.row_stride() + j) * size, std::size_t(size));
  return w;
}

bool stackable(std::span<const Weight> parts) {
  return std::ranges::all_of(parts, [&](const Weight& w) {
    return w.format == parts[0].format && w.group == parts[0].group && w.activations == parts[0].activations &&
           w.input_scale == parts[0].input_scale && same_order(w.order, parts[0].order);
  });
}

Weight stacked(std::span<const Weight> parts) {
  std::int64_t out = 0;
  bool zeros = false, minima = false;
  for (const Weight& p : parts) out += p.out, zeros |= bool(p.zeros), minima |= bool(p.minima);
  Weight all = unfilled(parts[0], out, zeros, minima);
  std::int64_t at = 0;
  const auto put = [&](const Tensor& from, const Tensor& to, std::int64_t rows) {
    if (!to) return;
    const std::size_t bytes = std::size_t(rows * to.dim(1) * size_of(to.dtype()));
    if (from)
      std::memcpy(to.rows(at, rows).raw(), from.raw(), bytes);
    else
      std::memset(to.rows(at, rows).raw(), 0, bytes);
  };
  for (const Weight& p : parts) {
    put(p.values, all.values, p.out), put(p.kept, all.kept, p.out), put(p.scales, all.scales, p.out);
    put(p.zeros, all.zeros, p.out), put(p.minima, all.minima, p.out);
    at += p.out;
  }
  return all;
}

}  // namespace foretoken

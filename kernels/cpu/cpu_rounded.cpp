// Products of the CPU backend with rounded inputs: rows become numbers, and outliers are added behind the product. The
// mathematics: kernels/formats/activations/activation_format.h; the products: product_rounded.h, and product_integers.h
// for integers.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <type_traits>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

bool integers(const PackedWeight& w) { return w.packing != Packing::e4m3; }

// As RoundedInputs has them.
DType type_of_numbers(const Operations& operations, const PackedWeight& w) {
  if (!integers(w)) return operations.rounds_to_bf16 ? DType::bf16 : DType::f32;
  return operations.byte_quads ? DType::i8 : DType::f16;  // f16: any 16 bits
}

// The numbers of a group, from round_row or integers_of_row, as products read integers; returns their sum.
template <class N, class T> std::int32_t put_quads(std::span<const N> group, bool natural, T* to) {
  constexpr int kPlaces[] = {0, 2, 1, 3};
  std::int32_t sum = 0;
  for (std::size_t k = 0; k < group.size(); ++k) {
    const int place = natural ? int(k % 4) : kPlaces[k % 4];
    const auto number = std::int32_t(+group[k]);  // a char of 8 bits is a number here
    to[k / 4 * 4 + std::size_t(place)] = T(number);
    sum += number;
  }
  return sum;
}

// The numbers of one row, group by group; `sums` of integers.
template <class N>
void arrange_numbers(const PackedWeight& w, DType type, std::span<const N> numbers, void* to, std::int32_t* sums) {
  const std::int64_t padded = w.padded_group();
  for (std::int64_t g = 0; g < w.groups; ++g) {
    const auto group = numbers.subspan(std::size_t(g * w.group), std::size_t(w.group));
    if (type == DType::i8 && std::is_same_v<N, std::int8_t>) {
      std::memmove(static_cast<std::int8_t*>(to) + g * padded, group.data(), group.size());  // may be in place
      sums[g] = std::transform_reduce(group.begin(), group.end(), 0, std::plus(), [](N x) { return std::int32_t(x); });
    } else if (type == DType::i8)
      sums[g] = put_quads(group, true, static_cast<std::int8_t*>(to) + g * padded);
    else if (type == DType::f16)
      sums[g] = put_quads(group, false, static_cast<std::int16_t*>(to) + g * padded);
    else if (type == DType::bf16)
      std::ranges::transform(group, static_cast<bf16*>(to) + g * padded, [](N x) { return bf16(float(x)); });
    else
      std::ranges::copy(group, static_cast<float*>(to) + g * padded);
  }
}

// The numbers of row `x`, as arrange_numbers has them, and their sums; returns their scale.
float numbers_of_row(const Operations& operations, const PackedWeight& w, DType type, const float* x, std::byte* to,
                     std::int32_t* sums, std::vector<Outlier>& apart) {
  const bool plain = w.activations == &formats::int8_rows(), padded = w.padded_group() != w.group;
  std::vector<float> row;
  if (!plain || !w.order.empty()) row.assign(x, x + w.in);
  for (std::size_t j = 0; j < w.order.size(); ++j) row[j] = x[w.order[j]];
  if (!row.empty()) x = row.data();
  if (padded) std::fill_n(to, w.groups * w.padded_group() * size_of(type), std::byte(0));
  if (!plain) {
    const float scale = round_row(*w.activations, w.input_scale, row, apart);
    arrange_numbers(w, type, std::span<const float>(row), to, sums);
    return scale;
  }
  const bool in_place = type == DType::i8 && !padded;
  std::vector<std::int8_t> elsewhere(in_place ? 0 : std::size_t(w.in));
  std::int8_t* integers = in_place ? reinterpret_cast<std::int8_t*>(to) : elsewhere.data();
  const float scale = operations.integers_of_row(x, w.in, w.input_scale, integers);
  arrange_numbers(w, type, std::span<const std::int8_t>(integers, std::size_t(w.in)), to, sums);
  return scale;
}

// y += the products of outliers, each sum in ascending order.
void add_outliers(const PackedWeight& w, std::int64_t panel, const std::vector<Outlier>& apart, float* y) {
  float sums[kPanel] = {}, outputs[kPanel];
  for (const Outlier& x : apart) {
    unpack_input(w, panel, x.input, outputs);
    for (int o = 0; o < kPanel; ++o) sums[o] += x.value * outputs[o];
  }
  for (std::int64_t o = panel * kPanel; o < std::min(w.out, (panel + 1) * kPanel); ++o) y[o] += sums[o % kPanel];
}

}  // namespace

void CpuBackend::multiply_rounded(const Tensor& x, const PackedWeight& w, Tensor y, bool accumulate) {
  const std::int64_t rows = x.dim(0), inputs = w.groups * w.padded_group();
  if (rows == 0) return;
  const DType type = type_of_numbers(operations_, w);
  const Tensor numbers = allocate_rows(rows, inputs, type), scales = allocate({rows}, DType::f32),
               sums = allocate({rows, w.groups}, DType::i32);
  std::vector<std::vector<Outlier>> apart(static_cast<std::size_t>(rows));
  for_rows(rows, 4 * w.in, [&](std::int64_t r) {
    std::byte* to = static_cast<std::byte*>(numbers.raw()) + r * numbers.row_stride() * size_of(type);
    scales.data<float>()[r] =
        numbers_of_row(operations_, w, type, x.row<float>(r), to, sums.row<std::int32_t>(r), apart[std::size_t(r)]);
  });
  // Outliers belong to the product, which is one number before it is added to y.
  const bool outliers = std::ranges::any_of(apart, [](const auto& of_row) { return !of_row.empty(); });
  const Tensor product = accumulate && outliers ? allocate(y.shape(), DType::f32) : y;
  Product p{};
  p.weights = w.data.get(), p.codes = w.codes(), p.x = numbers.raw();
  p.x_stride = numbers.row_stride();
  p.y = product.data<float>(), p.y_stride = product.row_stride();
  p.rows = rows, p.inputs = inputs, p.out = w.out, p.accumulate = accumulate && !outliers;
  p.rounded = {scales.data<float>(), sums.data<std::int32_t>()};
  const auto panels = operations_.rounded_product[int(w.packing)];
  for_panels(w, rows, [&](std::int64_t begin, std::int64_t end) {
    panels(p, begin, end);
    for (std::int64_t r = 0; outliers && r < rows; ++r)
      for (std::int64_t panel = begin; panel < end && !apart[std::size_t(r)].empty(); ++panel)
        add_outliers(w, panel, apart[std::size_t(r)], product.row<float>(r));
  });
  if (accumulate && outliers) add(y, product);
}

}  // namespace foretoken

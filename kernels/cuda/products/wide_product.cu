// Products of many rows with sliced bf16 matrices, by the kernel of wide_kernel.cuh. The library writes the sum of each
// slice to memory, and a kernel adds them: about 60 us a layer of an 8B model at 512 rows.
#include <algorithm>

#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/wide_kernel.cuh"
#include "kernels/cuda/products/wide_product.cuh"

namespace foretoken {
namespace {

template <int kGroups, int kRows> constexpr WideWay kWay = kWideWay<Bf16Numbers, RunFold::none, true, kGroups, kRows>;
constexpr WideWay kWays[] = {kWay<2, 192>, kWay<2, 128>, kWay<3, 128>, kWay<2, 96>, kWay<3, 96>, kWay<2, 64>};

// The library's: each slice's sum is written to memory and read back.
double cost_of_library(double rows, double out, double in, double slices) {
  return std::max(2 * rows * out * in / 650e6, 2 * out * in / 4.2e6) + 8 * slices * rows * out / 5e6 + 6;
}

const WideWay& way_for(const CudaBackend& backend, std::int64_t rows, std::int64_t out, std::int64_t in) {
  return fastest_way(backend, kWays, rows, out, in / kBoxInputs);
}

}  // namespace

bool can_widen(const CudaBackend& backend, std::int64_t rows, std::int64_t out, std::int64_t in) {
  const std::int64_t slices = splits_of(out, in);
  return multiplies_boxes(backend) && in % (kBoxInputs * slices) == 0 && out % 4 == 0 && slices > 1 && rows > 0 &&
         wide_cost(backend, way_for(backend, rows, out, in).shape, double(rows), double(out), double(in) / kBoxInputs) <
             cost_of_library(double(rows), double(out), double(in), double(slices));
}

void wide_product(const CudaBackend& backend, const Epilogue& to, const Tensor& x, const Tensor& matrix) {
  BoxWork a = {};
  a.to = to, a.slices = splits_of(matrix.dim(0), matrix.dim(1)), a.runs = 1;
  a.boxes = int(matrix.dim(1)) / a.slices / kBoxInputs;
  way_for(backend, to.rows, matrix.dim(0), matrix.dim(1)).launch(backend, a, x, matrix);
}

}  // namespace foretoken

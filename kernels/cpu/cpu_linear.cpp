// linear and linear_add of the CPU backend: see product_rows.h for the mathematics and the floor.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"

namespace foretoken {
namespace {

constexpr std::int64_t kChunkPanels = 2;  // panels that a thread takes at a time

// Rough microseconds of one thread, to tell what is worth a fork (which costs about one).
double estimated_time(const PackedWeight& w, std::int64_t rows) {
  return std::max(double(w.bytes()) / 50e3, 2.0 * double(rows * w.out * w.inputs) / 300e3);
}

}  // namespace

// x as the product reads it: dense rows of w.inputs numbers, zeros behind the last; in bf16 where the instructions take it.
static Tensor arranged(CpuBackend& backend, const Tensor& x, const PackedWeight& w) {
  const Operations& operations = backend.operations();
  const bool round = w.packing == Packing::bf16 && operations.rounds_to_bf16;
  if (!round && w.inputs == w.in && x.dense()) return x;
  Tensor y = backend.allocate({x.dim(0), w.inputs}, round ? DType::bf16 : DType::f32);
  for (std::int64_t r = 0; r < x.dim(0); ++r) {
    if (round) {
      operations.to_bf16(x.row<float>(r), y.row<std::uint16_t>(r), w.in);
      std::fill(y.row<std::uint16_t>(r) + w.in, y.row<std::uint16_t>(r) + w.inputs, std::uint16_t(0));
    } else {
      std::memcpy(y.row<float>(r), x.row<float>(r), std::size_t(w.in) * sizeof(float));
      std::fill(y.row<float>(r) + w.in, y.row<float>(r) + w.inputs, 0.0f);
    }
  }
  return y;
}

// Sums of x over the groups of an int8 weight, [rows, groups].
static Tensor group_sums(CpuBackend& backend, const Tensor& x, const PackedWeight& w) {
  Tensor sums = backend.allocate({x.dim(0), w.groups}, DType::f32);
  for (std::int64_t r = 0; r < x.dim(0); ++r) {
    for (int g = 0; g < w.groups; ++g) {
      float sum = 0;
      for (int i = 0; i < w.group; ++i) sum += x.row<float>(r)[g * w.group + i];
      sums.row<float>(r)[g] = sum;
    }
  }
  return sums;
}

void CpuBackend::multiply(const Tensor& x, const Weight& w, Tensor y, bool accumulate) {
  if (x.dim(0) == 0) return;
  PackedWeight fresh;
  if (!w.prepared) fresh = pack(w, weight_memory_, pool_);
  const PackedWeight& packed = w.prepared ? *static_cast<const PackedWeight*>(w.prepared.get()) : fresh;
  const Tensor rows = arranged(*this, x, packed);
  const Tensor sums = packed.packing == Packing::int8 ? group_sums(*this, rows, packed) : Tensor();
  Product p{};
  p.weights = packed.data.get();
  p.scales = static_cast<const float*>(packed.scales.get());
  p.zeros = static_cast<const float*>(packed.zeros.get());
  p.x = rows.raw();
  p.sums = sums.data<float>();
  p.y = y.data<float>(), p.y_stride = y.row_stride();
  p.rows = x.dim(0), p.inputs = packed.inputs, p.out = packed.out;
  p.groups = packed.groups, p.group = packed.group;
  p.accumulate = accumulate;
  const auto panels = operations_.product[int(packed.packing)];
  if (estimated_time(packed, p.rows) < 2.5) return panels(p, 0, packed.panels);
  pool_.run(int((packed.panels + kChunkPanels - 1) / kChunkPanels),
            [&](int c) { panels(p, c * kChunkPanels, std::min(packed.panels, (c + 1) * kChunkPanels)); });
}

Tensor CpuBackend::linear(const Tensor& x, const Weight& w) {
  expect_rows("linear", x, w.in);
  Tensor y = allocate({x.dim(0), w.out}, DType::f32);
  multiply(x, w, y, false);
  return y;
}

void CpuBackend::linear_add(Tensor x, const Tensor& h, const Weight& w) {
  expect_rows("linear_add", h, w.in);
  expect_rows("linear_add", x, w.out);
  multiply(h, w, x, true);
}

}  // namespace foretoken

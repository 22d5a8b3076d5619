// The kernels of tile_kernel.cuh and wide_kernel.cuh for numbers of 8 bits: half the bytes of bf16, and twice the
// products a cycle. Integers with one group of inputs are summed in one chain, in slices at will, since sums are exact.
// FP8 is summed in chains of 128 inputs, added in f32, in the slices of splits_of(). With several groups, chains are
// groups (FP8: 128 inputs of one), scaled and added in order.
#include <algorithm>

#include "kernels/cuda/products/rounded_boxes.cuh"
#include "kernels/cuda/products/tile_kernel.cuh"
#include "kernels/cuda/products/tile_product.cuh"
#include "kernels/cuda/products/wide_kernel.cuh"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

constexpr std::int64_t kBox = Int8Numbers::kInputs, kFewRows = 16;

using Launch = void (*)(const CudaBackend&, BoxWork&, const Tensor&, const Tensor&);
// The kernels for one kind of numbers and of their sums.
struct Kernels {
  Launch few[3], tile[3];                  // at most 16 rows, at most 64; by kOuts
  std::span<const WideWay> whole, sliced;  // more rows: of one slice, of several
};
constexpr int kOuts[] = {64, 144, 224};

template <class N, RunFold kFold, int kRows, int kOutputs> constexpr Launch kTile =
    launch_tile<BoxTile<N, kRows, kOutputs, 1>, kFold>;
// The more sums a lane adds up at once (chains, runs, slices), the fewer rows its registers have room for.
template <class N, RunFold kFold, bool kSliced>
constexpr WideWay kWide[] = {kWideWay<N, kFold, kSliced, 2, 128>, kWideWay<N, kFold, kSliced, 2, 64>};
template <class N> constexpr WideWay kWide<N, RunFold::none, false>[] = {
    kWideWay<N, RunFold::none, false, 2, 256>, kWideWay<N, RunFold::none, false, 2, 192>,
    kWideWay<N, RunFold::none, false, 2, 128>, kWideWay<N, RunFold::none, false, 3, 128>,
    kWideWay<N, RunFold::none, false, 2, 64>};
template <class N> constexpr WideWay kWide<N, RunFold::added, false>[] = {kWideWay<N, RunFold::added, false, 2, 192>,
                                                                          kWideWay<N, RunFold::added, false, 2, 128>,
                                                                          kWideWay<N, RunFold::added, false, 2, 64>};
template <class N, RunFold kFold>
constexpr Kernels kKernels = {{kTile<N, kFold, 16, 64>, kTile<N, kFold, 16, 144>, kTile<N, kFold, 16, 224>},
                              {kTile<N, kFold, 64, 64>, kTile<N, kFold, 64, 144>, kTile<N, kFold, 64, 224>},
                              kWide<N, kFold, false>,
                              kWide<N, kFold, kFold == RunFold::added>};

bool integers(const RoundedMatrix& m) { return m.weight().activations->coding() == Coding::integers; }

const Kernels& kernels_of(const RoundedMatrix& m) {
  if (m.groups() > 1)
    return integers(m) ? kKernels<Int8Numbers, RunFold::scaled> : kKernels<E4m3Numbers, RunFold::scaled>;
  return integers(m) ? kKernels<Int8Numbers, RunFold::none> : kKernels<E4m3Numbers, RunFold::added>;
}

// Slices, and the index in kOuts.
struct TileChoice {
  int slices, outs;
};

// The least bytes that the busiest multiprocessor loads, of the matrix and of x.
TileChoice tile_choice(const CudaBackend& backend, const RoundedMatrix& m, std::int64_t rows, int least, int most) {
  const std::int64_t out = m.weight().out, boxes = m.weight().in / kBox;
  TileChoice best = {least, 2};
  double fewest = 1e30;
  for (int slices = least; slices <= most && boxes % slices == 0; slices *= 2)
    for (int i = 0; i < 3; ++i) {
      const std::int64_t tiles = blocks_for(out, kOuts[i]),
                         waves = (tiles + blocks_at_once(backend, slices) - 1) / blocks_at_once(backend, slices);
      // A cluster's sums pass through shared memory: as long as some 100 KB take.
      const double bytes = double(waves * (boxes / slices) * (kOuts[i] + rows) * kBox) + (slices > 1 ? 1e5 : 0);
      if (bytes < fewest) fewest = bytes, best = {slices, i};
    }
  return best;
}

void launch(const CudaBackend& backend, BoxWork& a, const Tensor& x, const RoundedMatrix& m) {
  const Kernels& kernels = kernels_of(m);
  const std::int64_t rows = x.dim(0), out = m.weight().out, boxes = m.weight().in / kBox;
  if (rows > kTileRows)
    return fastest_way(backend, a.slices > 1 ? kernels.sliced : kernels.whole, rows, out, boxes)
        .launch(backend, a, x, m.codes());
  const std::int64_t padded = rows <= kFewRows ? kFewRows : kTileRows;
  const bool free = integers(m) && m.groups() == 1 && !a.to.gated;
  const TileChoice choice = tile_choice(backend, m, padded, free ? 1 : a.slices, free ? 8 : a.slices);
  a.boxes = a.boxes * a.slices / choice.slices, a.slices = choice.slices;
  (rows <= kFewRows ? kernels.few : kernels.tile)[choice.outs](backend, a, x, m.codes());
}

}  // namespace

bool can_multiply_boxes(const CudaBackend& backend, const RoundedMatrix& m) {
  const Weight& w = m.weight();
  return multiplies_boxes(backend) && !w.zeros && w.in % kBox == 0 && w.group % kBox == 0 && w.out % 8 == 0;
}

void multiply_boxes(const CudaBackend& backend, const ProductResult& result, const RoundedRows& x,
                    const RoundedMatrix& m) {
  const Weight& w = m.weight();
  const int boxes = int(w.in / kBox);
  BoxWork a = {};
  a.to = result.epilogue();
  // The slices of FP8 are fixed, whatever the rows: they are in a result's bits. A gated one has no slices.
  const bool sliced = !integers(m) && m.groups() == 1 && boxes % splits_of(w.out, w.in) == 0;
  a.slices = sliced ? splits_of(w.out, w.in) : 1;
  const int chain = m.groups() > 1 ? int(std::min<std::int64_t>(w.group, integers(m) ? w.group : kChunkInputs) / kBox)
                    : integers(m)  ? boxes
                                   : 1;
  a.runs = boxes / a.slices / chain, a.boxes = chain;
  if (m.groups() > 1) {
    a.row_scales = x.scales.data<float>(), a.group_scales = m.scales().data<float>();
    a.outputs = int(w.out), a.group_runs = int(w.group / kBox) / chain;
  } else {
    a.to.row_scales = x.scales.data<float>(), a.to.out_scales = m.scales().data<float>();
  }
  launch(backend, a, x.numbers, m);
}

}  // namespace foretoken

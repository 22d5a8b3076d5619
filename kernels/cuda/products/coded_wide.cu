// y = x W^T + b for more than 64 rows, W packed, x bf16 [rows, in], sums in f32. Bytes: the codes once from memory for
// every 2048 rows; for every tile of 128 outputs x 96 to 256 rows its cells and half of its rows of x, from L2: of 256
// rows and codes of 4 bits, 20 bytes a cycle of a multiprocessor. Operations: 2 * rows * out * in, which bound the
// time: 128 inputs of a tile take 8 cycles a row. Meanwhile each scheduler issues, for both warpgroups, 400 (codes of 4
// bits, scales of bf16) to 1100 (f32 scales, zero points and minima) instructions, counted in SASS.
//
// Clusters of two blocks take tile after tile, as in wide_kernel.cuh. Slices of splits_of() are added in order: one
// after another in a block, which keeps two sums, so that its tiles have at most 128 rows; or, where tiles are too few
// for all multiprocessors, by the last of the blocks that compute them apart and write them to memory.
#include <algorithm>
#include <array>

#include "kernels/cuda/products/coded_wide.cuh"
#include "kernels/cuda/products/coded_wide_ring.cuh"
#include "kernels/cuda/products/stream_product.cuh"

namespace foretoken {
namespace {

#ifdef FORETOKEN_WARPGROUPS

// Adds the slices of a warpgroup's part of a tile that are computed apart, in order, to `sum`: the last warpgroup does,
// and only there it returns true. `last`: shared by the warpgroup.
template <class T> __device__ bool add_parts(const CodedWideWork& a, const WideOrder& order, const TilePlace& at,
                                             int slice, float (&sum)[T::kRows / 2], int* last) {
  const int thread = thread_of_now(), group = thread / 128,
            unit = (at.row / T::kRows * order.pairs * T::kPeers + at.tile) * T::kGroups + group;
  constexpr int kFours = T::kRows / 8;
  float4* partials = a.partials + std::int64_t(unit) * a.parts * kFours * 128 + thread % 128;
#pragma unroll
  for (int n = 0; n < kFours; ++n)
    __stcg(partials + (slice * kFours + n) * 128, float4{sum[4 * n], sum[4 * n + 1], sum[4 * n + 2], sum[4 * n + 3]});
  asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
  if (thread % 128 == 0) last[group] = count_behind(a.counters + unit) == a.parts - 1;
  asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
  if (last[group] == 0) return false;
  if (thread % 128 == 0) a.counters[unit] = 0;
#pragma unroll
  for (int n = 0; n < kFours; ++n) {
    const float4 p = __ldcg(partials + n * 128);
    sum[4 * n] = p.x, sum[4 * n + 1] = p.y, sum[4 * n + 2] = p.z, sum[4 * n + 3] = p.w;
  }
#pragma unroll 1
  for (int s = 1; s < a.parts; ++s) {
    partials += kFours * 128;
#pragma unroll
    for (int n = 0; n < kFours; ++n) {
      const float4 p = __ldcg(partials + n * 128);
      sum[4 * n] += p.x, sum[4 * n + 1] += p.y, sum[4 * n + 2] += p.z, sum[4 * n + 3] += p.w;
    }
  }
  return true;
}

// A warp's part of the items of its cluster.
template <class T, class U, bool kRuns> __device__ void multiply_items(const CodedWideWork& a, const WideOrder& order,
                                                                       const CodedWideRing<T>& ring, float* staging,
                                                                       unsigned numbers, int* last) {
  const int first = int(blockIdx.x) / T::kPeers, stride = int(gridDim.x) / T::kPeers;
  wait_for_previous_kernels();
  CodedWideSums<T, U> sums(a, ring, numbers, int(threadIdx.x) / 32, int(threadIdx.x) % 32);
  WideOutput<T, RunFold::none> output(a.to, staging);
  for (int i = first; i < a.items(order); i += stride) {
    const TilePlace at = order(i / a.parts);
    output.begin(at);
    float sum[T::kRows / 2] = {};
    if constexpr (kRuns) {
      float slice[T::kRows / 2] = {};  // else its registers are kept for the whole kernel
      for (int s = 0; s < a.runs; ++s) {
        sums.add_up(slice);
#pragma unroll
        for (int n = 0; n < T::kRows / 2; ++n) sum[n] = s == 0 ? slice[n] : sum[n] + slice[n];
      }
      output.write(sum);
    } else {
      sums.add_up(sum);
      if (a.parts == 1 || add_parts<T>(a, order, at, i % a.parts, sum, last)) output.write(sum);
    }
  }
}

// Cluster c computes items c, c + clusters, ...: slices of pairs of the order's tiles, each block of one tile of a
// pair.
template <class T, class U, bool kRuns> __global__ void __launch_bounds__(T::kThreads, 1)
    coded_wide_kernel(const __grid_constant__ CodedWideWork a, WideOrder order) {
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t barriers[2 * (CodedWideSize::kMostBoxes + CodedWideSize::kMostPieces)];
  __shared__ float numbers[16];
  __shared__ int last[T::kGroups];
  static_assert(sizeof barriers + sizeof numbers + sizeof last == CodedWideSize::kStaticBytes);
  if (U::kCode == Code::table && threadIdx.x < 16) numbers[threadIdx.x] = a.layout.numbers[threadIdx.x];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  constexpr int kRegisters = worker_registers<T>(), kSpared = spare_registers<T>();
  static_assert(32 * T::kWorkers * kRegisters + 128 * kSpared <= 65536 / T::kThreads / 8 * 8 * T::kThreads);
  order.rank = int(blockIdx.x) % T::kPeers;
  let_next_kernel_start();
  const CodedWideRing<T> ring(a, shared, barriers);
  if (warp >= T::kWorkers) {
    release_registers<kSpared>();
    const int first = int(blockIdx.x) / T::kPeers, stride = int(gridDim.x) / T::kPeers;
    if (warp == T::kWorkers && lane == 0) ring.request_cells(order, first, stride);
    if (warp == T::kWorkers + 1 && lane == 0) ring.request_rows(order, first, stride);
    __syncwarp();
  } else {
    acquire_registers<kRegisters>();
    multiply_items<T, U, kRuns>(a, order, ring,
                                reinterpret_cast<float*>(shared + (ring.end() - shared_address(shared))),
                                shared_address(numbers), last);
  }
  sync_cluster();  // the other block may still arrive at this block's barriers
}

#else
template <class T, class U, bool kRuns>
__global__ void coded_wide_kernel(const __grid_constant__ CodedWideWork, WideOrder) {}
#endif

// ---- the host's side ----

WideOrder order_of(std::int64_t out, std::int64_t rows, int tile_rows) {
  return {int(blocks_for(out, kWidePeers * CodedWideSize::kOuts)), int(blocks_for(rows, tile_rows)), tile_rows};
}

template <int kRows, bool kRuns>
void launch(const CudaBackend& backend, CodedWideWork& work, const Tensor& x, const PackedMatrix& m) {
  using T = CodedWideTile<kRows>;
  plain_map(work.x, x, kRows / kWidePeers);
  work.cell_stages = T::kSize.pieces(), work.box_stages = int(T::kSize.boxes(m.layout.cell, backend.shared_memory()));
  const WideOrder order = order_of(m.out, x.dim(0), kRows);
  work.once = order.row_tiles == 1;
  const int clusters = std::clamp(backend.multiprocessors() / kWidePeers, 1, work.items(order));
  const Grid grid{dim3(unsigned(kWidePeers * clusters)), T::kThreads,
                  std::size_t(T::kSize.bytes(m.layout.cell, work.box_stages)), kWidePeers, backend.dependent_launch()};
  with_unpack(m.layout, [&]<class U>(U) {
    launch_kernel("a product", backend.cuda_stream(), grid, coded_wide_kernel<T, U, kRuns>, work, order);
  });
}

// A tile's rows, and whether a block adds all slices of its tiles, or they are items of their own.
struct CodedWay {
  int rows;
  bool runs;
  void (*launch)(const CudaBackend&, CodedWideWork&, const Tensor&, const PackedMatrix&);

  int parts(std::int64_t slices) const { return runs ? 1 : int(slices); }
  // Floats in memory for slices that are computed apart.
  std::int64_t partials(std::int64_t rows_of, std::int64_t out, std::int64_t slices) const {
    return parts(slices) == 1
               ? 0
               : order_of(out, rows_of, rows).count() * kWidePeers * slices * rows * CodedWideSize::kOuts;
  }
};
template <int kRows, bool kRuns> constexpr CodedWay kWay = {kRows, kRuns, launch<kRows, kRuns>};
constexpr CodedWay kWays[] = {kWay<256, false>, kWay<192, false>, kWay<128, false>, kWay<128, true>, kWay<96, false>};
constexpr std::int64_t kMostParts = 8 << 20;  // floats of a product, which L2 holds

// Warp instructions of 16 outputs x 128 inputs, counted in SASS, at most.
double instructions(const PackedLayout& l) {
  if (l.form == ScaleForm::f32_all || l.code == Code::sparse) return 570;
  return l.form != ScaleForm::f32 ? 270 : l.code == Code::table ? 340 : 430;
}

// Estimated microseconds on an H200, whose clock is 1.75 GHz, or as much less under such load as 1.3 times the cycles
// of products stand for. The conversion of codes is issued at 0.7 of a scheduler's rate, while products run. The
// kernel's start and the first boxes take 5 us; writing a tile's sums a cycle for ten, slices that are apart as much
// again and 1 us.
double cost_of(const CudaBackend& backend, const CodedWay& way, const PackedMatrix& m, double rows) {
  const double slices = double(splits_of(m.out, m.in)), parts = way.parts(splits_of(m.out, m.in)),
               items = order_of(m.out, std::int64_t(rows), way.rows).count() * parts,
               rounds = std::ceil(items / std::max(1, backend.multiprocessors() / kWidePeers)),
               step = std::max(1.3 * way.rows + 8, 2 * instructions(m.layout) / 8 / 0.7),
               write = CodedWideSize::kOuts * way.rows / 10.0, bytes = double(m.bytes()) / 4.2e6;
  if (way.runs && slices == 1) return 1e30;
  return 5 +
         std::max(bytes, rounds * (double(m.in) / 16 / parts * step + (parts > 1 ? 2 * write + 1750 : write)) / 1750);
}
// The same of unpacking, reading 2 bytes a weight again, and of the library's products.
double cost_unpacked(const CudaBackend& backend, const PackedMatrix& m, double rows) {
  const double numbers = double(m.out) * double(m.in), copied = (double(m.bytes()) + 2 * numbers) / 4.2e6 + 4;
  return copied + 6 + std::max(2 * numbers / 4.2e6, 2 * rows * numbers / (650e6 / 132 * backend.multiprocessors()));
}

const CodedWay& way_for(const CudaBackend& backend, const PackedMatrix& m, std::int64_t rows) {
  const auto cost = [&](const CodedWay& w) {
    const bool fits = w.partials(rows, m.out, splits_of(m.out, m.in)) <= kMostParts;
    return fits ? cost_of(backend, w, m, double(rows)) : 1e31;
  };
  return *std::min_element(std::begin(kWays), std::end(kWays),
                           [&](const CodedWay& a, const CodedWay& b) { return cost(a) < cost(b); });
}

}  // namespace

bool can_widen_codes(const CudaBackend& backend, const PackedMatrix& m) {
  return backend.warpgroups() && coded_wides_fit(m.layout.cell, backend.shared_memory()) && m.out % 4 == 0 &&
         m.in % (kCellInputs * splits_of(m.out, m.in)) == 0 && map_encoder() != nullptr;
}

bool widens_codes(const CudaBackend& backend, const PackedMatrix& m, std::int64_t rows) {
  return cost_of(backend, way_for(backend, m, rows), m, double(rows)) < cost_unpacked(backend, m, double(rows));
}

void coded_wide_product(CudaProducts& products, const Epilogue& to, const Tensor& x, const PackedMatrix& m) {
  CudaBackend& backend = products.backend();
  const int slices = splits_of(m.out, m.in);
  const CodedWay& way = way_for(backend, m, x.dim(0));
  CodedWideWork a = {};
  a.to = to, a.cells = m.data(), a.layout = m.layout, a.parts = way.parts(slices), a.runs = slices / a.parts;
  a.pieces = int(m.in) / kCellInputs / slices;
  Tensor partials;
  if (a.parts > 1) {
    partials = backend.allocate({way.partials(x.dim(0), m.out, slices)}, DType::f32);
    a.partials = static_cast<float4*>(partials.raw()), a.counters = products.counters().data<int>();
  }
  way.launch(backend, a, x, m);
}

}  // namespace foretoken

// y = x W^T + b for many rows, the sum over the inputs in the slices of splits_of(), added in order. W bf16 [out, in],
// x bf16 [rows, in]. Bytes: for every tile of kOuts x kRows its rows of both, mostly from L2. Operations: 2 * rows *
// out * in, which bound the time. The library writes the sum of each slice to memory, and a kernel adds them: about 60
// us a layer of an 8B model at 512 rows. Here a block computes all slices of its tile in sequence and keeps two sums in
// registers: that of the current slice, and that of the slices before it. Two blocks with neighbouring outputs form a
// cluster: each requests half of their rows of x, which are multicast to both.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/products/product_maps.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/wide_product.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

constexpr int kCluster = 2;  // blocks

// kGroups warpgroups with 64 outputs each, kRows rows of x, and one more warpgroup, of which a lane requests boxes; one
// block on a multiprocessor.
template <int kGroupsOf, int kRowsOf> struct WideTile {
  static constexpr int kGroups = kGroupsOf, kRows = kRowsOf, kOuts = 64 * kGroups, kWorkers = 4 * kGroups,
                       kThreads = 128 * (kGroups + 1);
  static constexpr int kMatrixBytes = kOuts * kBoxInputs * 2, kHalfBytes = kRows / kCluster * kBoxInputs * 2,
                       kBytes = kMatrixBytes + kCluster * kHalfBytes;
  static constexpr ProductWideTile kSize{kGroups, kRows};
  static constexpr int kStages = kSize.stages(), kShared = int(kSize.bytes());
  static constexpr int kPitch = kOuts + 4;  // of the sums in shared memory, so that one write of a warp covers 32 banks
  static_assert(kStages * kBytes >= kRows * kPitch * 4 && kBytes == kSize.stage());
  static_assert(has(kWideTiles, kSize) && kSize.fits(kLargestSharedMemory));
};

namespace {

struct WideWork {
  CUtensorMap w, x;
  int out, rows, slices, boxes, pairs;  // boxes of a slice, pairs of neighbouring tiles
  const float* bias;
  float* y;  // one of y and y_bf16
  Bf16* y_bf16;
  std::int64_t y_stride;
  bool adds, once;  // once: all blocks run at once, read the matrix at the same time, and do not read it again
};

#ifdef FORETOKEN_WARPGROUPS

__device__ inline std::uint64_t read_some() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// Copies a box to the same address in both blocks; the barrier at the same address in each counts its bytes.
__device__ inline void copy_box_to_both(unsigned to, const CUtensorMap& map, int k, int row, unsigned barrier,
                                        std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
      "[%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(to),
      "l"(&map), "r"(k), "r"(row), "r"(barrier), "h"(std::uint16_t(3)), "l"(policy)
      : "memory");
}
__device__ inline void arrive_at(std::uint64_t* barrier, int block) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, "
      "[there];\n}" ::"r"(shared_address(barrier)),
      "r"(block)
      : "memory");
}

template <class T> __device__ inline void sync_workers() {
  asm volatile("bar.sync 1, %0;" ::"n"(32 * T::kWorkers) : "memory");
}

template <class T> struct WideRing {
  unsigned memory;
  std::uint64_t* barriers;  // kStages full barriers, then kStages empty ones

  __device__ WideRing(unsigned char* shared, std::uint64_t* barriers)
      : memory((shared_address(shared) + 1023u) & ~1023u), barriers(barriers) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < T::kStages; ++i) init_barrier(full(i), 1), init_barrier(empty(i), kCluster * T::kWorkers);
      fence_barriers();
    }
    sync_cluster();
  }
  __device__ std::uint64_t* full(int stage) const { return barriers + stage; }
  __device__ std::uint64_t* empty(int stage) const { return barriers + T::kStages + stage; }
  __device__ unsigned at(int stage) const { return memory + unsigned(stage * T::kBytes); }

  // One lane requests all boxes of the outputs from o0 on and, for both blocks, of its half of the rows from r0 on.
  __device__ void request(const WideWork& a, int o0, int r0, int rank) const {
    const int boxes = a.slices * a.boxes, early = min(T::kStages, boxes), half = r0 + rank * (T::kRows / kCluster);
    const std::uint64_t policy = a.once ? read_once() : read_some(), often = read_often();
    const auto matrix = [&](int i, int stage) {
      expect_copies(full(stage), T::kBytes);
      copy_box(at(stage), a.w, i * kBoxInputs, o0, shared_address(full(stage)), policy);
    };
    const auto rows = [&](int i, int stage) {
      copy_box_to_both(at(stage) + unsigned(T::kMatrixBytes + rank * T::kHalfBytes), a.x, i * kBoxInputs, half,
                       shared_address(full(stage)), often);
    };
    for (int i = 0; i < early; ++i) matrix(i, i);
    wait_for_previous_kernels();
    for (int i = 0; i < early; ++i) rows(i, i);
    int stage = early % T::kStages, round = early / T::kStages;
    for (int i = early; i < boxes; ++i) {
      wait_barrier(empty(stage), (round - 1) & 1);
      matrix(i, stage), rows(i, stage);
      if (++stage == T::kStages) stage = 0, ++round;
    }
  }

  // sum = the slices' products, added in order; the inputs of each slice are summed in ascending order. Lane l of warp
  // w of the group holds outputs 16 w + l / 4 and the eighth after it, rows 8 n + 2 (l % 4) and the next.
  __device__ void add_up(float (&sum)[T::kRows / 2], int group, int slices, int boxes) const {
    const int lane = int(threadIdx.x) % 32;
    const auto release = [&](int stage) {
      if (lane < kCluster) arrive_at(empty(stage), lane);
    };
    float part[T::kRows / 2];
    int stage = 0, round = 0, before = 0;
    for (int s = 0; s < slices; ++s) {
      for (int i = 0; i < boxes; ++i) {
        wait_barrier(full(stage), round & 1);
        const std::uint64_t w = tile_descriptor(at(stage) + unsigned(group * 64 * kBoxInputs * 2), 16),
                            x = tile_descriptor(at(stage) + T::kMatrixBytes, 16);
        pin(part);
        begin_products();
#pragma unroll
        for (int k = 0; k < kBoxInputs / 16; ++k) multiply_boxes(part, moved(w, 32 * k), moved(x, 32 * k), i + k > 0);
        end_products();
        pin(part);
        wait_products<1>();  // the products of the box before
        if (i > 0) release(before);
        before = stage;
        if (++stage == T::kStages) stage = 0, ++round;
      }
      wait_products<0>();
      pin(part);
      release(before);
#pragma unroll
      for (int n = 0; n < T::kRows / 2; ++n) sum[n] = s == 0 ? part[n] : sum[n] + part[n];
    }
  }
};

// Writes sums from shared memory, four outputs at a time; adds the bias, then the previous y.
template <class T> __device__ void write_wide(const WideWork& a, const float* sums, int o0, int r0) {
  constexpr int kFours = T::kOuts / 4;
  const int items = min(T::kRows, a.rows - r0) * kFours;
#pragma unroll 4
  for (int i = int(threadIdx.x); i < items; i += 32 * T::kWorkers) {
    const int r = i / kFours, o = i % kFours * 4;
    if (o0 + o >= a.out) continue;
    float4 v = load_four(sums + r * T::kPitch + o);
    const float* const b = a.bias + o0 + o;
    if (a.bias != nullptr) v.x += b[0], v.y += b[1], v.z += b[2], v.w += b[3];
    const std::int64_t at = (r0 + r) * a.y_stride + o0 + o;
    if (a.y == nullptr) {
      store_four(a.y_bf16 + at, v);
    } else if (a.adds) {
      const float4 before = __ldcg(reinterpret_cast<const float4*>(a.y + at));
      store_four(a.y + at, {before.x + v.x, before.y + v.y, before.z + v.z, before.w + v.w});
    } else {
      store_four(a.y + at, v);
    }
  }
}

// Block 2 i + j computes tile 2 (i % pairs) + j of the outputs, tile i / pairs of the rows.
template <class T> __global__ void __launch_bounds__(T::kThreads, 1) wide_kernel(const __grid_constant__ WideWork a) {
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t barriers[2 * T::kStages];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, rank = int(blockIdx.x) % kCluster,
            pair = int(blockIdx.x) / kCluster;
  const int o0 = (pair % a.pairs * kCluster + rank) * T::kOuts, r0 = pair / a.pairs * T::kRows;
  let_next_kernel_start();
  const WideRing<T> ring(shared, barriers);
  if (warp >= T::kWorkers) {
    if constexpr (T::kGroups > 2) release_registers<32>();
    if (warp == T::kWorkers && lane == 0) ring.request(a, o0, r0, rank);
    __syncwarp();
    sync_cluster();
  } else {
    if constexpr (T::kGroups > 2) acquire_registers<160>();
    float sum[T::kRows / 2];
    ring.add_up(sum, warp / 4, a.slices, a.boxes);
    wait_for_previous_kernels();
    sync_workers<T>();  // the ring is no longer read, and all requested copies are complete
    float* const sums = reinterpret_cast<float*>(shared + (ring.memory - shared_address(shared)));
    float* const to = sums + lane % 4 * 2 * T::kPitch + warp * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < T::kRows / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) to[(8 * n + j % 2) * T::kPitch + j / 2 * 8] = sum[4 * n + j];
    sync_workers<T>();
    write_wide<T>(a, sums, o0, r0);
    sync_cluster();  // the other block may still arrive at this block's barriers
  }
}

#else
template <class T> __global__ void wide_kernel(const __grid_constant__ WideWork) {}
#endif

// ---- the host's side ----

template <int kGroups, int kRows>
void launch(const CudaBackend& backend, WideWork& work, const Tensor& x, const Tensor& matrix) {
  using T = WideTile<kGroups, kRows>;
  plain_map(work.w, matrix, T::kOuts);
  plain_map(work.x, x, T::kRows / kCluster);
  work.pairs = int(blocks_for(work.out, kCluster * T::kOuts));
  const unsigned blocks = unsigned(kCluster * work.pairs) * blocks_for(work.rows, T::kRows);
  work.once = int(blocks) <= backend.multiprocessors();
  launch_kernel("a product", backend.cuda_stream(),
                {dim3(blocks), T::kThreads, std::size_t(T::kShared), kCluster, backend.dependent_launch()},
                wide_kernel<T>, work);
}

struct Way {
  int groups, rows;
  void (*launch)(const CudaBackend&, WideWork&, const Tensor&, const Tensor&);
};
constexpr Way kWays[] = {{2, 128, launch<2, 128>},
                         {3, 128, launch<3, 128>},
                         {2, 96, launch<2, 96>},
                         {3, 96, launch<3, 96>},
                         {2, 64, launch<2, 64>}};

// Estimated microseconds on an H200, within about 15 % of the measured time of the sliced products of 1B and 8B models
// at 192 to 2048 rows. A box takes the time of its products, or of its traffic through shared memory at 128 bytes a
// cycle; the first boxes and the last sums take 8 us.
double cost_of(const CudaBackend& backend, const Way& way, double rows, double out, double in) {
  const double tiles = kCluster * std::ceil(out / (kCluster * 64 * way.groups)) * std::ceil(rows / way.rows),
               waves = std::ceil(tiles / backend.multiprocessors());
  const double passed = way.groups * (8192.0 + 128 * way.rows) + 128.0 * (64 * way.groups + way.rows);
  return waves * (8 + in / kBoxInputs * std::max(2.0 * way.groups * way.rows, passed / 128) / 1750);
}
// The library's: each slice's sum is written to memory and read back.
double cost_of_library(double rows, double out, double in, double slices) {
  return std::max(2 * rows * out * in / 650e6, 2 * out * in / 4.2e6) + 8 * slices * rows * out / 5e6 + 6;
}

const Way& way_for(const CudaBackend& backend, std::int64_t rows, std::int64_t out, std::int64_t in) {
  const auto cost = [&](const Way& w) { return cost_of(backend, w, double(rows), double(out), double(in)); };
  return *std::min_element(std::begin(kWays), std::end(kWays),
                           [&](const Way& a, const Way& b) { return cost(a) < cost(b); });
}

}  // namespace

bool can_widen(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix) {
  const std::int64_t rows = x.dim(0), out = matrix.dim(0), in = matrix.dim(1), slices = splits_of(out, in);
  return backend.warpgroups() && all_fit(kWideTiles, backend.shared_memory()) && matrix.dtype() == DType::bf16 &&
         x.dtype() == DType::bf16 && aligned(x, 16) && aligned(matrix, 16) && in % (kBoxInputs * slices) == 0 &&
         out % 4 == 0 && aligned(y, 4 * size_of(y.dtype())) && map_encoder() != nullptr && slices > 1 &&
         cost_of(backend, way_for(backend, rows, out, in), double(rows), double(out), double(in)) <
             cost_of_library(double(rows), double(out), double(in), double(slices));
}

void wide_product(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix,
                  const Tensor& bias, bool adds) {
  WideWork a = {};
  a.out = int(y.dim(1)), a.rows = int(x.dim(0)), a.slices = splits_of(matrix.dim(0), matrix.dim(1)),
  a.boxes = int(matrix.dim(1)) / a.slices / kBoxInputs;
  if (y.dtype() == DType::f32)
    a.y = y.data<float>();
  else
    a.y_bf16 = y.data<Bf16>();
  a.y_stride = y.row_stride(), a.adds = adds;
  if (bias) a.bias = bias.data<float>();
  way_for(backend, a.rows, a.out, matrix.dim(1)).launch(backend, a, x, matrix);
}

}  // namespace foretoken

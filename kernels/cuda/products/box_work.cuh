// The arguments of a product of boxes, and how a warpgroup adds up a slice of the inputs. This header must not know how
// the sums are written.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/instructions/tensor_maps.cuh"
#include "kernels/cuda/products/box_ring.cuh"
#include "kernels/cuda/products/epilogue.cuh"

namespace foretoken {

// How the sums of runs of boxes are added. A run is one chain of the tensor cores.
enum class RunFold {
  none,   // one run for a slice
  added,  // in f32, in order: FP8, whose chains must be short
  scaled  // in f32, in order, each by the scales of its row and of its group of inputs
};

struct BoxWork {
  CUtensorMap w, x;
  Epilogue to;
  int slices, runs, boxes, tiles;  // runs of a slice, boxes of a run, tiles of outputs
  // RunFold::scaled: f32 [rows]; f32 [groups, outputs of the matrix]; runs of a group.
  const float *row_scales = nullptr, *group_scales = nullptr;
  int outputs = 0, group_runs = 1;

  __host__ __device__ int slice_boxes() const { return runs * boxes; }
};

// Whether kernels of boxes run on this GPU: all their tiles, whichever a shape takes.
inline bool multiplies_boxes(const CudaBackend& backend) {
  return backend.warpgroups() && all_fit(kProductTiles, backend.shared_memory()) && map_encoder() != nullptr;
}

#ifdef FORETOKEN_WARPGROUPS

// Of the outputs of a lane: see write_sums().
struct LaneOutputs {
  int o, other;
};
template <class T> __device__ LaneOutputs lane_outputs(const Epilogue& to, int tile, int warp, int lane) {
  if (to.gated) {
    const int o = tile * (T::kOuts / 2) + warp * 8 + lane / 4;
    return {o, to.out + o};
  }
  const int o = tile * T::kOuts + warp * 16 + lane / 4;
  return {o, o + 8};
}

// sum = (first ? 0 : sum) + part * (row's scale * group's scale); each operation is rounded.
template <class T> __device__ void add_scaled(float (&sum)[T::kRows / 2], const typename T::Sum (&part)[T::kRows / 2],
                                              const BoxWork& a, int run, const LaneOutputs& outputs, int r0) {
  const float* const scales = a.group_scales + std::int64_t(run / a.group_runs) * a.outputs;
  const float scale[2] = {outputs.o < a.outputs ? scales[outputs.o] : 0,
                          outputs.other < a.outputs ? scales[outputs.other] : 0};
  const int row = r0 + int(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < T::kRows / 8; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int r = row + 8 * n + j;
      const float of_row = r < a.to.rows ? a.row_scales[r] : 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 4 * n + 2 * i + j;
        const float before = run == 0 ? 0.0f : sum[at];
        sum[at] = __fadd_rn(before, __fmul_rn(float(part[at]), __fmul_rn(of_row, scale[i])));
      }
    }
}

// What a lane's sums are of after a fold.
template <class T, RunFold kFold> using Folded = std::conditional_t<kFold == RunFold::none, typename T::Sum, float>;

// sum = the product of the next slice of inputs.
template <class T, RunFold kFold> __device__ void add_slice(BoxSums<T>& sums, Folded<T, kFold> (&sum)[T::kRows / 2],
                                                            const BoxWork& a, const LaneOutputs& outputs, int r0) {
  if constexpr (kFold == RunFold::none) {
    sums.chain(sum, a.boxes);
  } else {
    typename T::Sum part[T::kRows / 2];
    for (int run = 0; run < a.runs; ++run) {
      sums.chain(part, a.boxes);
      if constexpr (kFold == RunFold::scaled) {
        add_scaled<T>(sum, part, a, run, outputs, r0);
      } else {
#pragma unroll
        for (int i = 0; i < T::kRows / 2; ++i) sum[i] = run == 0 ? part[i] : sum[i] + part[i];
      }
    }
  }
}

#endif

}  // namespace foretoken

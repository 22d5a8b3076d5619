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
  added,  // in f32, in order, runs of one box: FP8, whose chains must be short
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

// RunFold::scaled: the scales of a lane's rows, and of its outputs in each run.
template <class T> class RunScales {
 public:
  static constexpr bool kKept = T::kStaged > 0;  // tiles of few rows have fewer registers

  __device__ RunScales(const BoxWork& a, const LaneOutputs& outputs, int r0) : a_(a), outputs_(outputs) {
    first_ = r0 + int(threadIdx.x) % 4 * 2;
    if constexpr (kKept)
#pragma unroll
      for (int n = 0; n < T::kRows / 4; ++n) rows_[n] = load(n);
  }
  // Of both outputs; after the last run: zeros.
  __device__ float2 of_run(int run) const {
    const float* const scales = a_.group_scales + std::int64_t(run / a_.group_runs) * a_.outputs;
    const auto scale = [&](int o) { return run < a_.runs && o < a_.outputs ? scales[o] : 0; };
    return {scale(outputs_.o), scale(outputs_.other)};
  }
  // sum = (first ? 0 : sum) + part * (row's scale * group's scale); each operation is rounded.
  __device__ void add(float (&sum)[T::kRows / 2], const typename T::Sum (&part)[T::kRows / 2], bool first,
                      float2 scale) const {
#pragma unroll
    for (int i = 0; i < T::kRows / 2; ++i) {
      const int n = i / 4 * 2 + i % 2;
      const float scaled = __fmul_rn(kKept ? rows_[n] : load(n), i % 4 < 2 ? scale.x : scale.y);
      sum[i] = __fadd_rn(first ? 0.0f : sum[i], __fmul_rn(float(part[i]), scaled));
    }
  }

 private:
  __device__ float load(int n) const {
    const int r = first_ + n / 2 * 8 + n % 2;
    return r < a_.to.rows ? a_.row_scales[r] : 0;
  }

  const BoxWork& a_;
  const LaneOutputs outputs_;
  int first_;
  float rows_[kKept ? T::kRows / 4 : 1];
};

// What a lane's sums are of after a fold.
template <class T, RunFold kFold> using Folded = std::conditional_t<kFold == RunFold::none, typename T::Sum, float>;

// sum = the product of the next slice of inputs. `leads`: of BoxSums::chain(), at the first run.
template <class T, RunFold kFold> __device__ void add_slice(BoxSums<T>& sums, Folded<T, kFold> (&sum)[T::kRows / 2],
                                                            const BoxWork& a, const LaneOutputs& outputs, int r0,
                                                            bool leads = false) {
  if constexpr (kFold == RunFold::none) {
    sums.chain(sum, a.boxes, leads);
  } else if constexpr (kFold == RunFold::added) {
    sums.chain(sum, 1, leads);
    typename T::Sum part[T::kRows / 2] = {};
    for (int run = 1; run < a.runs; ++run) {
      sums.chain(part, 1);
#pragma unroll
      for (int i = 0; i < T::kRows / 2; ++i) sum[i] += part[i];
    }
  } else {
    const RunScales<T> scales(a, outputs, r0);
    typename T::Sum part[T::kRows / 2] = {};
    float2 next = {};
    if constexpr (RunScales<T>::kKept) next = scales.of_run(0);
    for (int run = 0; run < a.runs; ++run) {
      float2 scale = next;
      if constexpr (RunScales<T>::kKept) next = scales.of_run(run + 1);  // loaded while the products run
      sums.chain(part, a.boxes, leads && run == 0);
      if constexpr (!RunScales<T>::kKept) scale = scales.of_run(run);
      scales.add(sum, part, run == 0, scale);
    }
  }
}

#endif

}  // namespace foretoken

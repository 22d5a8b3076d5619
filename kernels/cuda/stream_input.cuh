// What a streamed product is told, and its rows of x on their way into shared memory: as they are, or normed.
// This room must not know how the matrix is read.
#pragma once
#include <algorithm>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/row_norm.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace foretoken {

enum class StreamInput { bf16, f32, norm };

struct Stream {
  const Bf16* w;
  int out, in, tiles;
  StreamInput kind;
  const void* x;
  std::int64_t x_stride;
  int rows;
  const float* gain;
  float epsilon;
  int slices, slice, local;  // slices, inputs of a slice, slices of one block
  int depth;                 // inputs of a slice whose x a block holds at once: all, or a part that divides it, of local 1
  const float* bias;
  float* partials;  // [slices, tiles, NT, 32 lanes, 4]
  int* counters;    // [tiles]
  float* y;         // one of the two
  Bf16* y_bf16;
  std::int64_t y_stride;
  bool adds;
  bool gated;  // y [rows, out / 2]: silu of the first half of the outputs times the second half
};

// The rows of x, `columns` columns from k0 on, on their way into shared memory as bf16, rows pitch() apart: all at once, or `depth`
// columns at a time into two places by turns, from the first on in each of `rounds` rounds. All threads of a block call begin(),
// before the kernel waits for the one before it, then load(); then, where columns come by turns, wait() and done() around each turn.
class StreamRows {
 public:
  __device__ StreamRows(const Stream& a, int k0, int columns, int rounds, Bf16* xs, void* barriers)
      : a_(a), k0_(k0), columns_(columns), depth_(by_turns() ? a.depth : columns), xs_(xs), left_(rounds * (columns / depth_)), bulk_(barriers) {}

  // Shared memory for xs. One row is normed here; with more, a kernel before does it better than every block for itself.
  static std::int64_t bytes(StreamInput kind, std::int64_t rows, std::int64_t in, std::int64_t columns, std::int64_t depth) {
    return std::max(rows * (depth + 8) * 2 * (depth < columns ? 2 : 1), kind == StreamInput::norm ? 4 * in : 0);
  }
  __device__ bool by_turns() const { return a_.depth < a_.slice; }
  __device__ int pitch() const { return depth_ + 8; }

  __device__ void begin() {
    __syncthreads();
    if (a_.kind != StreamInput::norm) return;
    for (int i = 4 * int(threadIdx.x); i < columns_; i += 4 * int(blockDim.x)) {  // into the nearest cache
      const float4 g = __ldg(reinterpret_cast<const float4*>(a_.gain + k0_ + i));
      asm volatile("" ::"f"(g.x), "f"(g.y), "f"(g.z), "f"(g.w));
    }
  }
  // Where all columns come at once, they are there afterwards.
  __device__ void load() {
    if (a_.kind == StreamInput::bf16) {
      ask(0);
      return by_turns() ? ask(1) : bulk_.wait(0, 0);
    }
    if (a_.kind == StreamInput::norm) {
      bulk_.copy(0, 8, xs_, a_.in / 2, a_.x, a_.in / 2, a_.in / 2);  // an eighth at a time
      bulk_.wait(0, 0);
      norm();
    }
    if (a_.kind == StreamInput::f32) round();
    __syncthreads();
  }

  // Until the columns of this turn are there; how many numbers behind xs.
  __device__ int wait(int turn) {
    bulk_.wait(turn % 2, turn / 2);
    return turn % 2 * a_.rows * pitch();
  }
  // No thread of the block reads them any more.
  __device__ void done(int turn) {
    __syncthreads();
    ask(turn % 2);
  }

 private:
  __device__ void ask(int place) {
    if (left_-- <= 0) return;
    bulk_.copy(place, a_.rows, xs_ + place * a_.rows * pitch(), 2 * pitch(), static_cast<const Bf16*>(a_.x) + k0_ + next_, 2 * a_.x_stride, 2 * depth_);
    next_ = next_ + depth_ < columns_ ? next_ + depth_ : 0;
  }
  // The row came as f32 where its bf16 go: what is written lies before what is not read yet.
  __device__ void norm() {
    __shared__ float partial[8];
    const float* const row = reinterpret_cast<const float*>(xs_);
    const float s = inverse_length([&](int i) { return load_four(row + i); }, a_.in, a_.epsilon, partial);
    for (int begin = 0; begin < columns_; begin += 4 * int(blockDim.x)) {
      const int i = begin + 4 * int(threadIdx.x);
      float4 v = {}, g = {};
      if (i < columns_) v = load_four(row + k0_ + i), g = __ldg(reinterpret_cast<const float4*>(a_.gain + k0_ + i));
      __syncthreads();
      if (i < columns_) store_four(xs_ + i, {normalized(v.x, s, g.x), normalized(v.y, s, g.y), normalized(v.z, s, g.z), normalized(v.w, s, g.w)});
    }
  }
  __device__ void round() {
    for (int r = 0; r < a_.rows; ++r)
#pragma unroll 4
      for (int i = 4 * int(threadIdx.x); i < columns_; i += 4 * int(blockDim.x))
        store_four(xs_ + r * pitch() + i, __ldcg(reinterpret_cast<const float4*>(static_cast<const float*>(a_.x) + r * a_.x_stride + k0_ + i)));
  }

  const Stream& a_;
  int k0_, columns_, depth_;
  Bf16* xs_;
  int left_, next_ = 0;  // turns to ask for, and the first column of the next
  Bulk bulk_;
};

}  // namespace foretoken

// What a streamed product is told, and its rows of x on their way into shared memory: as they are, or normed.
// This room must not know how the matrix is read.
#pragma once
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
  const float* bias;
  float* partials;  // [slices, tiles, NT, 32 lanes, 4]
  int* counters;    // [tiles]
  float* y;         // one of the two
  Bf16* y_bf16;
  std::int64_t y_stride;
  bool adds;
  bool gated;  // y [rows, out / 2]: silu of the first half of the outputs times the second half
};

// The rows of x, `columns` columns from k0 on, on their way into shared memory as bf16, rows `pitch` apart. All threads of a block
// call begin(), before the kernel waits for the one before it, then load(). `room`: shared memory for room_bytes().
class StreamRows {
 public:
  __device__ StreamRows(const Stream& a, int k0, int columns, Bf16* xs, int pitch, unsigned char* room, void* barrier)
      : a_(a), k0_(k0), columns_(columns), pitch_(pitch), xs_(xs), room_(room), bulk_(barrier) {}

  // One row is normed here; with more, a kernel before does it better than every block for itself.
  static std::int64_t room_bytes(StreamInput kind, std::int64_t in, std::int64_t columns) {
    return kind == StreamInput::norm ? 4 * (in + columns) : 0;
  }

  __device__ void begin() {
    __syncthreads();
    if (a_.kind == StreamInput::norm) bulk_.copy(1, gain(), 0, a_.gain + k0_, 0, 4 * columns_);
  }
  // Ends with a barrier.
  __device__ void load() {
    const Bf16* const x = static_cast<const Bf16*>(a_.x) + k0_;
    if (a_.kind == StreamInput::bf16) bulk_.copy(a_.rows, xs_, 2 * pitch_, x, 2 * a_.x_stride, 2 * columns_);
    if (a_.kind == StreamInput::norm) bulk_.copy(1, room_, 0, a_.x, 0, 4 * a_.in);
    bulk_.wait();
    if (a_.kind == StreamInput::bf16) return;
    if (a_.kind == StreamInput::norm) norm();
    if (a_.kind == StreamInput::f32) round();
    __syncthreads();
  }

 private:
  __device__ float* row() const { return reinterpret_cast<float*>(room_); }
  __device__ float* gain() const { return row() + a_.in; }

  __device__ void norm() {
    __shared__ float partial[8];
    const float s = inverse_length([&](int i) { return load_four(row() + i); }, a_.in, a_.epsilon, partial);
    for (int i = 4 * int(threadIdx.x); i < columns_; i += 4 * int(blockDim.x)) {
      const float4 v = load_four(row() + k0_ + i), g = load_four(gain() + i);
      store_four(xs_ + i, {normalized(v.x, s, g.x), normalized(v.y, s, g.y), normalized(v.z, s, g.z), normalized(v.w, s, g.w)});
    }
  }
  __device__ void round() {
    for (int r = 0; r < a_.rows; ++r)
#pragma unroll 4
      for (int i = 4 * int(threadIdx.x); i < columns_; i += 4 * int(blockDim.x))
        store_four(xs_ + r * pitch_ + i, __ldcg(reinterpret_cast<const float4*>(static_cast<const float*>(a_.x) + r * a_.x_stride + k0_ + i)));
  }

  const Stream& a_;
  int k0_, columns_, pitch_;
  Bf16* xs_;
  unsigned char* room_;
  Bulk bulk_;
};

}  // namespace foretoken

// The arguments of a streamed product, and loading of its rows of x to shared memory, unchanged or normed. This header
// must not know how the matrix is read.
#pragma once
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/elementwise/row_norm.cuh"
#include "kernels/cuda/instructions/tensor_core.cuh"
#include "kernels/cuda/products/epilogue.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

enum class StreamInput { bf16, f32, norm };

struct Stream {
  int out, in, tiles;
  StreamInput kind;
  const void* x;
  std::int64_t x_stride;
  int rows;
  const float* gain;
  float epsilon;
  int slices, slice, local;  // split-K slices, inputs of a slice, slices of one block
  int window;                // pieces of a warp in flight at a time until x has arrived
  // Blocks form groups of 2^parts_log, one block for each part of the slices; the 2^local_log slices of a part are in
  // neighbouring warps. groups: number of groups; stride: tiles processed at once in all blocks. Computed on the host:
  // divisions would delay the first copy.
  int parts_log, local_log, groups, stride;
  int depth;        // inputs of a slice whose x a block holds at once: all, or a divisor of them where local is 1
  float* partials;  // [slices, tiles, NT, 32 lanes, 4]
  int* counters;    // [tiles]
  Epilogue to;
};

// Loads the rows of x, `columns` columns from k0 on, to shared memory as bf16, rows pitch() apart: all at once, or
// double-buffered, `depth` columns at a time, from the first column on in each of `rounds` rounds. One row may be
// normed: in blocks of at least kNormThreads threads that load all its columns. All threads of a block call begin() and
// synchronize; when the previous kernels have ended, one warp (before architecture 90: all) calls request(); finish()
// does not wait once arrived() is true; where columns are double-buffered, wait() and done() enclose the use of each
// buffer.
class StreamRows {
 public:
  static constexpr int kMostNormed = 8192;  // numbers of a row that can be normed here

  __device__ StreamRows(const Stream& a, int k0, int columns, int rounds, Bf16* xs, void* barriers)
      : a_(a),
        k0_(k0),
        columns_(columns),
        depth_(double_buffered() ? a.depth : columns),
        xs_(xs),
        left_(double_buffered() ? rounds * (columns / depth_) : 1),
        bulk_(barriers) {}

  // Whether x is loaded in two alternating buffers. Shared memory of xs: streamed_x_bytes() of shared_memory.h. Only
  // one row is normed here: for several rows one kernel before is faster than the norm in every block.
  __device__ bool double_buffered() const { return a_.depth < a_.slice; }
  __device__ int pitch() const { return depth_ + 8; }

  // Loads the gains, which no kernel writes, to registers before any other load.
  __device__ void begin() {
    if (a_.kind == StreamInput::norm)
#pragma unroll
      for (int n = 0; n < kGroups; ++n)
        if (holds(n)) gains_[n] = __ldg(reinterpret_cast<const float4*>(a_.gain + group(n)));
  }
  // What can be computed before the previous kernels have ended.
  __device__ void prepare() { row_ = Bulk::row_of(a_.kind == StreamInput::norm ? 8 : a_.rows); }
  __device__ void request() {
    if (a_.kind == StreamInput::norm)
      bulk_.copy(0, 8, row_, xs_, a_.in / 2, a_.x, a_.in / 2, a_.in / 2);  // eight copies of an eighth of the row
    if (a_.kind == StreamInput::bf16) copy_next(0);
    if (double_buffered()) copy_next(1);
  }
  __device__ bool arrived() const { return a_.kind == StreamInput::f32 || bulk_.arrived(0, 0); }
  // Afterwards the previous kernels have ended, and the first columns (all, unless double-buffered) are in shared
  // memory.
  __device__ void finish() {
    if (a_.kind == StreamInput::f32) {
      wait_for_previous_kernels();
      round();
    } else {
      bulk_.wait(0, 0);  // also when double-buffered: before this, earlier kernels may still write what other warps
                         // than the first read next
    }
    if (a_.kind == StreamInput::norm) norm();
    if (a_.kind != StreamInput::bf16) __syncthreads();
  }

  // Waits for the columns of this round; returns their offset from xs in numbers.
  __device__ int wait(int round) {
    bulk_.wait(round % 2, round / 2);
    return round % 2 * a_.rows * pitch();
  }
  // All threads of the block have read the columns; loads the next ones.
  __device__ void done(int number) {
    __syncthreads();
    copy_next(number % 2);
  }

 private:
  static constexpr int kGroups = kMostNormed / 4 / kNormThreads;
  __device__ int group(int n) const { return 4 * (int(threadIdx.x) + kNormThreads * n); }
  __device__ bool reaches(int n) const {
    return 4 * kNormThreads * n < a_.in;
  }  // the same in all threads, so that unused instructions are not executed
  __device__ bool holds(int n) const { return threadIdx.x < kNormThreads && group(n) < a_.in; }

  __device__ void copy_next(int buffer) {
    if (left_-- <= 0) return;
    bulk_.copy(buffer, a_.rows, row_, xs_ + buffer * a_.rows * pitch(), 2 * pitch(),
               static_cast<const Bf16*>(a_.x) + k0_ + next_, 2 * a_.x_stride, 2 * depth_);
    next_ = next_ + depth_ < columns_ ? next_ + depth_ : 0;
  }
  // The row is in shared memory as f32, where its bf16 are written: everything is read before anything is written.
  __device__ void norm() {
    __shared__ float partial[kNormThreads / 32];
    static_assert(sizeof partial == kNormBytes);
    float4 v[kGroups] = {};
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      if (!reaches(n)) break;
      if (holds(n)) v[n] = load_four(reinterpret_cast<const float*>(xs_) + group(n));
    }
    const float s = inverse_length(v, a_.in, a_.epsilon, partial);
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      if (!reaches(n)) break;
      if (holds(n))
        store_four(xs_ + group(n), {normalized(v[n].x, s, gains_[n].x), normalized(v[n].y, s, gains_[n].y),
                                    normalized(v[n].z, s, gains_[n].z), normalized(v[n].w, s, gains_[n].w)});
    }
  }
  __device__ void round() {
    for (int r = 0; r < a_.rows; ++r)
#pragma unroll 4
      for (int i = 4 * int(threadIdx.x); i < columns_; i += 4 * int(blockDim.x))
        store_four(xs_ + r * pitch() + i, __ldcg(reinterpret_cast<const float4*>(static_cast<const float*>(a_.x) +
                                                                                 r * a_.x_stride + k0_ + i)));
  }

  const Stream& a_;
  int k0_, columns_, depth_;
  Bf16* xs_;
  int row_ = 0;          // that this thread loads
  int left_, next_ = 0;  // buffers still to be loaded, and the first column of the next
  Bulk bulk_;
  float4 gains_[kGroups] = {};
};

}  // namespace foretoken

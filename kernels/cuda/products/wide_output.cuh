// How the results of a tile of many rows are written: each warpgroup brings its sums, some rows at a time, into the
// order of the results in two small buffers of shared memory, and writes them four outputs at a time. The ring is not
// touched: it is filled for the next tile meanwhile. This header must not know how the sums are computed.
#pragma once
#include "kernels/cuda/products/box_work.cuh"

namespace foretoken {

#ifdef FORETOKEN_WARPGROUPS

// What becomes of the sums: see ProductEnd. Plain results are f32 or bf16, added ones f32, gated ones bf16.
enum class WideEnd { plain, plain_bf16, added, gated };

// threadIdx.x as a number of its own: what follows from it is computed again for each tile, not kept in registers while
// products are summed.
__device__ inline int thread_of_now() {
  int thread = int(threadIdx.x);
  asm volatile("" : "+r"(thread));
  return thread;
}

template <class T, RunFold kFold> class WideOutput {
 public:
  using Sum = Folded<T, kFold>;

  // `staging`: of all warpgroups of the block.
  __device__ WideOutput(const Epilogue& to, float* staging) : to_(to), staging_(staging) {}

  // Loads what the results of the tile need besides its sums; after the wait for previous kernels.
  __device__ void begin(const TilePlace& at) {
    at_ = at;
    const int thread = thread_of_now(), lane = thread % 32;
    if constexpr (kScaled) {
      const LaneOutputs outputs = lane_outputs<T>(to_, at.tile, thread / 32, lane);
      const int last = (to_.gated ? 2 : 1) * to_.out - 1;
      out_scales_ = {to_.out_scales[min(outputs.o, last)], to_.out_scales[min(outputs.other, last)]};
#pragma unroll
      for (int k = 0; k < T::kRows / 32; ++k)
        row_scales_[k] = to_.row_scales[min(at.row + 32 * k + lane, to_.rows - 1)];
    }
    if (to_.adds) fetch(thread);
  }

  __device__ void write(const Sum (&sum)[T::kRows / 2]) {
    if (to_.gated)
      write_as<WideEnd::gated>(sum, to_.y_bf16);
    else if (to_.y == nullptr)
      write_as<WideEnd::plain_bf16>(sum, to_.y_bf16);
    else if (to_.adds)
      write_as<WideEnd::added>(sum, to_.y);
    else
      write_as<WideEnd::plain>(sum, to_.y);
  }

 private:
  static constexpr int kPiece = T::kStaged, kPieces = T::kRows / kPiece, kBuffer = kPiece * 64;
  // Pieces whose previous y is loaded ahead: as many as registers allow.
  static constexpr int kAhead = T::kGroups > 2 ? 2 : T::kRows > 192 ? 3 : 4;
  static constexpr bool kScaled = kFold != RunFold::scaled && !std::is_same_v<typename T::Numbers, Bf16Numbers>;
  static_assert(T::kOuts == 64 * T::kGroups);
  // The first piece of the next tile must not be put where the last one of this tile may still be read.
  static_assert(kPiece == 16 && T::kRows % 32 == 0 && kPieces % 2 == 0 && kPieces >= kAhead);

  // A warpgroup's results in a row, rows that its threads write at once, four results each, and how often in a piece.
  template <WideEnd kEnd> static constexpr int kOuts = kEnd == WideEnd::gated ? 32 : 64;
  template <WideEnd kEnd> static constexpr int kStep = 128 / (kOuts<kEnd> / 4);
  template <WideEnd kEnd> static constexpr int kItems = kPiece / kStep<kEnd>;

  // A thread's results: from one column of four outputs, `left` rows from its first row on, at `y`.
  template <class Y> struct Column {
    Y* y;
    std::int64_t step;  // from one of its rows to the next
    int left;
    float4 bias;
  };
  template <WideEnd kEnd, class Y> __device__ Column<Y> column(Y* y, int thread) const {
    constexpr int kFours = kOuts<kEnd> / 4;
    const int r = at_.row + thread % 128 / kFours,
              o = (at_.tile * T::kGroups + thread / 128) * kOuts<kEnd> + thread % kFours * 4;
    Column<Y> c{y + to_.at(r, o), kStep<kEnd> * to_.y_stride, o < to_.out ? to_.rows - r : 0, {}};
    if (kEnd != WideEnd::gated && c.left > 0) c.bias = to_.bias_four(o);
    return c;
  }

  // Requests the previous y of this tile, 128 bytes at a time, from memory to L2.
  __device__ void fetch(int thread) const {
#pragma unroll
    for (int i = 0; i < (T::kRows + 63) / 64; ++i) {
      const int n = thread % 128 + 128 * i, r = at_.row + n / 2,
                o = at_.tile * T::kOuts + thread / 128 * 64 + n % 2 * 32;
      if (r < to_.rows && o < to_.out)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(to_.y + to_.at(r, o))) : "memory");
    }
  }

  template <WideEnd kEnd, class Y> __device__ void write_as(const Sum (&sum)[T::kRows / 2], Y* y) const {
    const int thread = thread_of_now(), group = thread / 128, row = thread % 128 / (kOuts<kEnd> / 4),
              o = thread % (kOuts<kEnd> / 4) * 4;
    Column<Y> c = column<kEnd>(y, thread);
    float2 bias = {};  // of the lane's outputs, where gated
    if constexpr (kEnd == WideEnd::gated)
      if (to_.bias != nullptr) bias = lane_bias(thread);
    float4 before[kAhead * kItems<kEnd>];
    const auto load = [&](int k, const Y* from) {
      float4& to = before[k % (kAhead * kItems<kEnd>)];
      to = {};
      if constexpr (kEnd == WideEnd::added)
        if (k * kStep<kEnd> < c.left) to = __ldcg(reinterpret_cast<const float4*>(from));
    };
    const Y* ahead = c.y;
#pragma unroll
    for (int k = 0; k < kAhead * kItems<kEnd>; ++k, ahead += c.step) load(k, ahead);
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      float* const buffer = staging_ + (2 * group + p % 2) * kBuffer;
      put<kEnd>(buffer, sum, p, bias, thread);
      // Behind it this piece can be read, and the buffer of the piece before can be written.
      asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
#pragma unroll
      for (int i = 0; i < kItems<kEnd>; ++i, c.y += c.step, ahead += c.step) {
        const int k = p * kItems<kEnd> + i;
        const float4 v = load_four(buffer + (row + i * kStep<kEnd>)*kOuts<kEnd> + swizzled_output(o, row));
        if (k * kStep<kEnd> < c.left) finish<kEnd>(c, v, before[k % (kAhead * kItems<kEnd>)]);
        if (p + kAhead < kPieces) load(k + kAhead * kItems<kEnd>, ahead);
      }
    }
  }
  template <WideEnd kEnd, class Y>
  __device__ void finish(const Column<Y>& c, const float4& v, const float4& before) const {
    const float4 p = kEnd == WideEnd::gated ? v : to_.biased(v, c.bias);
    if constexpr (kEnd == WideEnd::added)
      store_four(c.y, {before.x + p.x, before.y + p.y, before.z + p.z, before.w + p.w});
    else
      store_four(c.y, p);
  }

  __device__ float2 lane_bias(int thread) const {
    const int o = min(at_.tile * (T::kOuts / 2) + thread / 32 * 8 + thread % 32 / 4, to_.out - 1);
    return {to_.bias[o], to_.bias[to_.out + o]};
  }

  // The number that a sum stands for.
  __device__ static float number(Sum sum, float row_scale, float out_scale) {
    if constexpr (kScaled)
      return Epilogue::scaled_by(float(sum), row_scale, out_scale);
    else
      return sum;
  }
  // Eight outputs are swizzled by their row, so that a write of a warp covers all banks.
  __device__ static int swizzled_output(int o, int row) { return o ^ (row >> 1 & 3) * 8; }

  // The piece's numbers, or gated results, to [row, output].
  template <WideEnd kEnd>
  __device__ void put(float* to, const Sum (&sum)[T::kRows / 2], int piece, float2 bias, int thread) const {
    constexpr bool kGated = kEnd == WideEnd::gated;
    const int lane = thread % 32, o = thread % 128 / 32 * (kGated ? 8 : 16) + lane / 4;
#pragma unroll
    for (int n = 0; n < kPiece / 4; ++n) {
      const int first = n / 2 * 8, row = first + lane % 4 * 2 + n % 2, r = piece * kPiece + first;
      const int at = r / 2 + n % 2;
      const float row_scale = kScaled ? __shfl_sync(~0u, row_scales_[r / 32], r % 32 + lane % 4 * 2 + n % 2) : 0.0f;
      const float v = number(sum[at], row_scale, out_scales_.x), other = number(sum[at + 2], row_scale, out_scales_.y);
      float* const line = to + row * kOuts<kEnd>;
      if constexpr (kGated) {
        const bool biased = to_.bias != nullptr;
        line[swizzled_output(o, row)] = Epilogue::gated_of(biased ? v + bias.x : v, biased ? other + bias.y : other);
      } else {
        line[swizzled_output(o, row)] = v;
        line[swizzled_output(o + 8, row)] = other;
      }
    }
  }

  const Epilogue& to_;
  float* const staging_;
  TilePlace at_ = {};
  float2 out_scales_ = {};
  float row_scales_[T::kRows / 32];
};

#endif

}  // namespace foretoken

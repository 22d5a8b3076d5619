// A crew: a cluster of thread blocks (one block before architecture 90) that processes one row of a vocabulary. Its
// sums follow the summation tree of distribution.h for any number of blocks. Every operation is collective: all threads
// of the crew call it, and all get the same result. This header knows rows of numbers; it must not know distributions
// or draws.
#pragma once
#include <array>
#include <cstdint>
#include <utility>

#include <cooperative_groups.h>

#include "kernels/combined.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/shared_memory.h"
#include "kernels/distribution.h"

namespace foretoken {

constexpr int kCrewThreads = 512;  // of one block
constexpr int kCrewWarps = kCrewThreads / 32;
constexpr int kMostBlocks = 8;  // of one crew

// The shared memory of a block. Memory that other blocks write to is double-buffered: a block may be at most one
// operation ahead of another.
struct CrewMemory {
  struct alignas(16) Slot {
    std::uint32_t word[4];
  };
  Slot warps[kCrewWarps];
  Slot blocks[2][kMostBlocks];
  double totals[kMostSums];
};

// The start of every kernel of crews. The shared memory of a block must not be written before the block has started, so
// all blocks of a crew synchronize here, while they wait for the previous kernels.
__device__ inline void begin_crew() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto cluster = cooperative_groups::this_cluster();
  auto arrived = cluster.barrier_arrive();
  wait_for_previous_kernels();
  let_next_kernel_start();
  cluster.barrier_wait(std::move(arrived));
#endif
}

// The callable i -> f(begin + i * stride) for i < n. Overloads for other types of f precompute what these tokens share.
// What a token costs must not be behind a branch: only then do the loads of several tokens overlap, without which a
// pass takes several times as long.
template <class F> struct Along {
  const F& f;
  Token begin;
  int stride;
  __device__ auto operator()(int i) const { return f(begin + i * stride); }
};
template <class F> __device__ Along<F> along(const F& f, Token begin, int stride, int) { return {f, begin, stride}; }

// sum + v[0] + ... + v[n - 1] in order, by one thread, which loads ahead of its additions; if kKept, to[i] is the sum
// up to and including v[i]. `v` is aligned to 16 bytes and is zero from n to the next multiple of kSumAhead, up to
// which `to` is written; `to` may be `v`.
constexpr int kSumAhead = 4;
template <bool kKept> __device__ double running_sum(double sum, const double* v, double* to, int n) {
  const auto two = [&](int i) { return *reinterpret_cast<const double2*>(v + i); };
  double2 low = two(0), high = two(2);
#pragma unroll 4
  for (int i = 0; i < n; i += kSumAhead) {
    const double2 a = low, b = high;
    if (i + kSumAhead < n) low = two(i + 4), high = two(i + 6);
    const double s0 = add(sum, a.x), s1 = add(s0, a.y), s2 = add(s1, b.x);
    sum = add(s2, b.y);
    if constexpr (kKept)
      *reinterpret_cast<double2*>(to + i) = {s0, s1}, *reinterpret_cast<double2*>(to + i + 2) = {s2, sum};
  }
  return sum;
}

class Crew {
 public:
  // Dynamic shared memory that a block needs.
  static std::size_t bytes(int vocab) {
    static_assert(kTile == 256 && kSumAhead == 4 && kMostSums == 4);
    return std::size_t(crew_bytes(vocab));
  }

  __device__ Crew(CrewMemory& memory, double* sums, int vocab)
      : memory_(&memory), sums_(sums), vocab_(vocab), tiles_((vocab + kTile - 1) / kTile) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    rank_ = int(cooperative_groups::this_cluster().block_rank()),
    size_ = int(cooperative_groups::this_cluster().num_blocks());
#endif
    const int each = (tiles_ + size_ - 1) / size_;
    first_ = min(tiles_, rank_ * each), last_ = min(tiles_, first_ + each);
    for (int i = tiles_ + int(threadIdx.x); i < padded_tiles(vocab); i += kCrewThreads)
      sums_[i] = sums_[padded_tiles(vocab) + i] = 0;
  }

  __device__ int row() const { return int(blockIdx.x) / size_; }  // the row of this crew
  __device__ int size() const { return size_; }
  __device__ int rank() const { return rank_; }  // of this block
  __device__ int tiles() const { return tiles_; }
  __device__ bool leads() const { return rank_ == 0 && threadIdx.x == 0; }

  // A barrier of all threads of the crew; their earlier writes are visible to all of them afterwards. A block must not
  // end while others may access its shared memory.
  __device__ void sync() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (size_ > 1) return cooperative_groups::this_cluster().sync();
#endif
    __syncthreads();
  }
  // The address in the shared memory of block `rank` that corresponds to `mine` in this block.
  template <class T> __device__ T* at(T* mine, int rank) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (size_ > 1) return cooperative_groups::this_cluster().map_shared_rank(mine, unsigned(rank));
#endif
    return mine;
  }

  // f(x, values[x]) for the tokens x of this block, in each thread in ascending order.
  template <class F> __device__ void for_share(const float* values, F f) const {
    for_share_of(int(threadIdx.x), 0, 1, values, f);
  }
  // The same for the tokens of thread `thread` of this block that are part `part` of `parts`.
  template <class F> __device__ void for_share_of(int thread, int part, int parts, const float* values, F f) const {
    const int begin = first_ * kTile, end = min(vocab_, last_ * kTile), skipped = part * kCrewThreads;
    int rest = begin;
    if (reinterpret_cast<std::uintptr_t>(values) % 16 == 0) {
      rest += (end - begin) / 4 * 4;
#pragma unroll 4
      for (int x = begin + 4 * (thread + skipped); x < rest; x += 4 * kCrewThreads * parts) {
        const float4 v = *reinterpret_cast<const float4*>(values + x);
        f(x, v.x), f(x + 1, v.y), f(x + 2, v.z), f(x + 3, v.w);
      }
    }
    for (int x = rest + thread + skipped; x < end; x += kCrewThreads * parts) f(x, values[x]);
  }
  // f(x, n) for the tokens x .. x + n - 1 of this block, n <= 4, in each thread in ascending order; the threads of a
  // warp call f together, some possibly with n == 0. x is a multiple of 4.
  template <class F> __device__ void for_quads(F f) const {
    const int end = min(vocab_, last_ * kTile), lane = int(threadIdx.x) % 32;
    for (int x = first_ * kTile + 4 * (int(threadIdx.x) - lane); x < end; x += 4 * kCrewThreads)
      f(x + 4 * lane, max(0, min(4, end - x - 4 * lane)));
  }

  // op over the v of all threads, for an op that is associative, commutative and exact.
  template <class T, class Op> __device__ T agree(T v, Op op) {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    for (int m = 16; m > 0; m /= 2) v = op(v, from_lane(v, m));
    if (lane == 0) put(&memory_->warps[warp], v);
    __syncthreads();
    v = take<T>(memory_->warps[lane % kCrewWarps]);
    for (int m = kCrewWarps / 2; m > 0; m /= 2) v = op(v, from_lane(v, m));
    buffer_ ^= 1;
    if (warp == 0 && lane < size_) put(at(&memory_->blocks[buffer_][rank_], lane), v);
    sync();
    v = take<T>(memory_->blocks[buffer_][0]);
    for (int r = 1; r < size_; ++r) v = op(v, take<T>(memory_->blocks[buffer_][r]));
    return v;
  }

  // The tile_sum of f in every tile, f64 [tiles()], in this block's shared memory; valid until the operation after the
  // next one.
  template <class F> __device__ double* tile_sums(const F& f) {
    buffer_ ^= 1;
    double* const sums = sums_ + buffer_ * padded_tiles(vocab_);
    const int j = int(threadIdx.x) % 8;
    const unsigned eight = 0xffu << (threadIdx.x & 24u);
    for (int tile = first_ + int(threadIdx.x) / 8; tile < last_; tile += kCrewThreads / 8) {
      double a = 0;
      accumulate(f, tile * kTile + j, vocab_, [&](double v) { a = ::foretoken::add(a, v); });
      a = fold(a, eight);
      if (j < size_) *at(&sums[tile], j) = a;
    }
    sync();
    return sums;
  }

  // Memory of this block for the running sums of all tiles, f64 [tiles()], and the object for which it was filled last;
  // null where the contents are invalid.
  __device__ double* running() { return sums_ + 2 * padded_tiles(vocab_); }
  const void* running_of = nullptr;

  // The vocabulary_sum of f.
  template <class F> __device__ double sum(const F& f) {
    const double* const sums = tile_sums(f);
    if (threadIdx.x == 0) memory_->totals[0] = running_sum<false>(0, sums, nullptr, tiles_);
    __syncthreads();
    return memory_->totals[0];
  }
  // N vocabulary_sums in one pass: f(x) is a std::array<double, N>. Their tiles' sums take the memory of tile_sums and
  // of running(), so that the crew synchronizes before it is written and after it has been read.
  template <int N, class F> __device__ std::array<double, N> sums(const F& f) {
    static_assert(N <= kMostSums);
    const int j = int(threadIdx.x) % 8, padded = padded_tiles(vocab_);
    const unsigned eight = 0xffu << (threadIdx.x & 24u);
    running_of = nullptr;
    sync();
    for (int tile = first_ + int(threadIdx.x) / 8; tile < last_; tile += kCrewThreads / 8) {
      double a[N] = {};
      accumulate(f, tile * kTile + j, vocab_, [&](const std::array<double, N>& v) {
        for (int k = 0; k < N; ++k) a[k] = ::foretoken::add(a[k], v[std::size_t(k)]);
      });
      for (int k = 0; k < N; ++k) {
        const double s = fold(a[k], eight);
        if (j < size_) *at(&sums_[k * padded + tile], j) = s;
      }
    }
    sync();
    if (threadIdx.x < N) {
      double* const mine = sums_ + int(threadIdx.x) * padded;
      for (int i = tiles_; i < padded; ++i) mine[i] = 0;  // running() may have left something there
      memory_->totals[threadIdx.x] = running_sum<false>(0, mine, nullptr, tiles_);
    }
    sync();
    std::array<double, N> all;
    for (int k = 0; k < N; ++k) all[std::size_t(k)] = memory_->totals[k];
    return all;
  }

 private:
  __host__ __device__ static int padded_tiles(int vocab) {
    return ((vocab + kTile - 1) / kTile + kSumAhead - 1) / kSumAhead * kSumAhead;
  }

  // What one of the eight accumulators of a tile adds up: to(f(begin)), to(f(begin + 8)), ... in order.
  template <class F, class To> __device__ static void accumulate(const F& f, int begin, int vocab, const To& to) {
    constexpr int kSteps = kTile / 8;
    const auto g = along(f, begin, 8, kSteps);
    if ((begin | (kTile - 1)) < vocab) {
#pragma unroll 8
      for (int s = 0; s < kSteps; ++s) to(g(s));
    } else {
      for (int s = 0; begin + 8 * s < vocab; ++s) to(g(s));
    }
  }
  // The sum of eight accumulators, in each of their threads.
  __device__ static double fold(double a, unsigned eight) {
    for (int m = 4; m > 0; m /= 2) a = ::foretoken::add(a, __shfl_xor_sync(eight, a, m));
    return a;
  }

  template <class T> static constexpr int kWords = int(sizeof(T) / 4);
  template <class T> __device__ static T from_lane(const T& v, int mask) {
    std::uint32_t word[kWords<T>];
    memcpy(word, &v, sizeof v);
    for (int i = 0; i < kWords<T>; ++i) word[i] = __shfl_xor_sync(~0u, word[i], mask);
    T other;
    memcpy(&other, word, sizeof other);
    return other;
  }
  template <class T> __device__ static void put(CrewMemory::Slot* slot, const T& v) {
    static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= sizeof(CrewMemory::Slot));
    std::uint32_t word[kWords<T>];
    memcpy(word, &v, sizeof v);
    for (int i = 0; i < kWords<T>; ++i) slot->word[i] = word[i];
  }
  template <class T> __device__ static T take(const CrewMemory::Slot& slot) {
    std::uint32_t word[kWords<T>];
    for (int i = 0; i < kWords<T>; ++i) word[i] = slot.word[i];
    T v;
    memcpy(&v, word, sizeof v);
    return v;
  }

  CrewMemory* memory_;
  double* sums_;  // [4, padded_tiles(vocab_)]: two buffers of tile_sums, running(), one for sums()
  int vocab_, tiles_, rank_ = 0, size_ = 1;
  int first_, last_;  // the tiles of this block
  int buffer_ = 0;
};

class Backend;
// The grid for crews that process `rows` rows of a vocabulary, one block on each multiprocessor as long as there are
// enough. `resident`: blocks of the kernel that a multiprocessor runs at once.
Grid crew_grid(const Backend& backend, int rows, int vocab, int resident = 1);
// Makes the backend's GPU current in this thread.
void enter_device(const Backend& backend);

}  // namespace foretoken

// The rows themselves in a block of stream.cuh: how they are rotated and stored, in their pages and in shared memory,
// and how they come into the steps of the context. This header must not know how a step is summed.
#pragma once
#include "kernels/cuda/attention/stream_rows.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Numbers in bf16; of codes none of these functions is called.
template <class Rows> struct StreamOwn : Rows {
  using Rows::of, Rows::a, Rows::shared, Rows::ring, Rows::exchange, Rows::own, Rows::rotations, Rows::thread,
      Rows::lane, Rows::head, Rows::row, Rows::rows, Rows::range, Rows::table, Rows::all_low, Rows::all_high,
      Rows::own_low, Rows::own_high, Rows::kHead, Rows::kWorkers;
  static constexpr int kChunks = kHead / 8, kPairs = kChunks / 2, kPieces = kPairs + kChunks;

  using Rows::Rows;

  __device__ void fill_rotations() {  // by all threads
    constexpr int kHalf = kHead / 2;
    if (thread < kHalf) rotations[thread] = rotation_of(Rows::position, Rows::frequency);
    for (int i = thread < kHalf ? thread + int(blockDim.x) : thread; i < rows * kHalf; i += int(blockDim.x))
      rotations[i] = rotation_of(of.positions[row + i / kHalf], of.frequencies[i % kHalf]);
  }
  // Of several rows with the same slot (padding) the last is stored.
  __device__ bool last_of_slot(int r) const {
    for (int other = r + 1; other < rows; ++other)
      if (shared.slots[other] == shared.slots[r]) return false;
    return true;
  }

  // ---- storing: pieces of 16 bytes, for keys two each, of the rows whose slots are in this block's range ----
  struct Piece {
    uint4 low = {}, high = {};
    int page = 0;
  };
  __device__ bool is_here(int r) const { return shared.slots[r] >= range.begin && shared.slots[r] < range.end; }
  __device__ int page_index(int slot) const { return a.page_shift >= 0 ? slot >> a.page_shift : slot / a.page_rows; }
  __device__ Piece load_piece(int i) const {
    Piece p;
    const int r = i / kPieces, c = i % kPieces;
    if (i >= rows * kPieces || !is_here(r)) return p;
    p.page = table[page_index(shared.slots[r])];
    if (c < kPairs) {
      const uint4* const x = reinterpret_cast<const uint4*>(of.k + (row + r) * of.k_stride + head * kHead);
      p.low = x[c], p.high = x[c + kPairs];
    } else {
      p.low = reinterpret_cast<const uint4*>(of.v + (row + r) * of.v_stride + head * kHead)[c - kPairs];
    }
    return p;
  }
  __device__ void store_piece(int i, Piece p) {
    const int r = i / kPieces, c = i % kPieces, slot = shared.slots[r];
    if (!is_here(r) || !last_of_slot(r)) return;
    std::byte* const page = const_cast<std::byte*>(a.pool) + p.page * a.page_bytes;
    const std::int64_t at = (std::int64_t(head) * a.page_rows + (slot - page_index(slot) * a.page_rows)) * kChunks;
    if (c < kPairs) {
      rotate_eight(p.low, p.high, rotations + r * kHead / 2 + c * 8);
      uint4 *const to = reinterpret_cast<uint4*>(own) + r * kChunks, *const too =
                                                                         reinterpret_cast<uint4*>(page + a.keys) + at;
      to[c] = too[c] = p.low, to[c + kPairs] = too[c + kPairs] = p.high;
    } else {
      reinterpret_cast<uint4*>(own)[(a.longest + r) * kChunks + c - kPairs] =
          reinterpret_cast<uint4*>(page + a.values)[at + c - kPairs] = p.low;
    }
  }
  // `first`: the piece that this thread has loaded before.
  __device__ void store_pieces(Piece first) {
    for (int i = thread; i < rows * kPieces; i += kWorkers) store_piece(i, i == thread ? first : load_piece(i));
  }

  // ---- steps that contain the rows themselves, or keys that some row does not attend to ----
  __device__ bool odd(int from) const {
    return from < all_low || from + kStep > all_high || (from < own_high && from + kStep > own_low);
  }
  __device__ uint4* line(int stage, int key, int c) const {
    return reinterpret_cast<uint4*>(ring + stage * Rows::kPlane + (c / 8 * kStep + key) * 128) + (c % 8 ^ (key & 7));
  }
  __device__ std::uint64_t seen_keys(int from) const {  // keys that any row attends to
    bool low = false, high = false;
    for (int r = 0; r < rows; ++r) {
      const int2 sight = exchange[r * a.group / kSetVectors].sights[r * a.group % kSetVectors];
      const int begins = sight.x - from, ends = sight.y - from;
      low = low || (lane >= begins && lane < ends), high = high || (lane + 32 >= begins && lane + 32 < ends);
    }
    return __ballot_sync(~0u, low) | std::uint64_t(__ballot_sync(~0u, high)) << 32;
  }
  // Copies the rows' own keys or values to a stage of the ring, and zeros to values that no row attends to.
  __device__ void patch(int stage, int from, bool values) const {
    Rows::sync_workers();  // all reads of this stage's previous contents are done: the ring's barriers ensure it too,
                           // but racecheck does not follow them
    if (values) {
      const std::uint64_t seen = seen_keys(from);
#pragma unroll 4
      for (int key = thread / kChunks; key < kStep; key += kWorkers / kChunks)
        if (!(seen >> key & 1)) *line(stage, key, thread % kChunks) = uint4{};
      Rows::sync_workers();
    }
    for (int i = thread; i < rows * kChunks; i += kWorkers) {
      const int r = i / kChunks, key = shared.slots[r] - from;
      if (key >= 0 && key < kStep && last_of_slot(r))
        *line(stage, key, i % kChunks) =
            reinterpret_cast<const uint4*>(own)[(values * a.longest + r) * kChunks + i % kChunks];
    }
    fence_async_proxy();
    Rows::sync_workers();
  }
};

#endif

}  // namespace foretoken

// How the depths of a context are divided into chunks, whose sums start from zero, and how whole chunks are shared by
// blocks. Arithmetic without CUDA headers, for the host and for kernels, so that a test on any machine checks it for
// every depth. This header must not know rows, keys or kernels.
//
// A chunk is a function of depth alone, so that a row has the same sums whatever other rows are in the batch and
// however many blocks share its context. Chunks grow with depth: few short ones let many blocks share a short context;
// few long ones keep the number of sums small that blocks of a long context exchange (64 at a depth of 32,768).
#pragma once
#include <algorithm>

namespace foretoken {

constexpr int kStep = 64;  // depths processed at once; a chunk is whole steps

// log2 of the size of the chunk that contains a depth. Every chunk begins at a multiple of its size.
constexpr int chunk_shift(int depth) { return depth < 2048 ? 7 : depth < 4096 ? 8 : depth < 16384 ? 9 : 10; }
constexpr int chunk_of(int depth) {
  return depth < 2048    ? depth >> 7
         : depth < 4096  ? 8 + (depth >> 8)
         : depth < 16384 ? 16 + (depth >> 9)
                         : 32 + (depth >> 10);
}
// The first depth of a chunk.
constexpr int chunk_begin(int chunk) {
  return chunk < 16 ? chunk << 7 : chunk < 24 ? (chunk - 8) << 8 : chunk < 48 ? (chunk - 16) << 9 : (chunk - 32) << 10;
}
constexpr bool begins_chunk(int depth) { return (depth & ((1 << chunk_shift(depth)) - 1)) == 0; }
// Chunks of the depths [0, deepest).
constexpr int chunks_of(int deepest) { return deepest < 1 ? 0 : chunk_of(deepest - 1) + 1; }

struct DepthRange {
  int begin = 0, end = 0;
  constexpr bool empty() const { return begin >= end; }
};

// The most blocks that can share the depths [low, high). They take units of the size of the longest chunk there.
constexpr int most_splits(int low, int high) {
  return high <= low ? 0 : ((high - 1) >> chunk_shift(high - 1)) - (low >> chunk_shift(high - 1)) + 1;
}
// What block `split` of `splits` takes of the depths [low, high): whole chunks, units shared evenly by at most `splits`
// blocks; those behind have nothing.
constexpr DepthRange split_of(int low, int high, int splits, int split) {
  const int units = most_splits(low, high), used = std::min(splits, units);
  if (split >= used) return {high, high};
  const int shift = chunk_shift(high - 1), first = low >> shift;
  return {std::max(low, (first + units * split / used) << shift),
          std::min(high, (first + units * (split + 1) / used) << shift)};
}

}  // namespace foretoken

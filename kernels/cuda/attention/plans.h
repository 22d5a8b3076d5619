// How many blocks share a context: the plans of attention, from shapes and the machine's numbers alone, so that a test
// on any machine checks them. Times were measured on an H200. This header must not know pointers or kernels.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention/chunks.h"

namespace foretoken {

// Multiprocessors; the largest cluster in blocks; bytes of shared memory of a block (at most) and of a multiprocessor.
struct Machine {
  int multiprocessors = 0, cluster = 0;
  std::int64_t block_memory = 0, multiprocessor_memory = 0;
};

constexpr int kDecodeSpan = 128;                                // depths that a decode block processes at once
constexpr std::int64_t kMostScratch = std::int64_t(512) << 20;  // bytes of the sums of chunks
constexpr double kReadBandwidth = 4.2e12;                       // bytes a second
// The fold: its latency, and bytes a second of sums that are written and read again, mostly in L2.
constexpr double kFoldSeconds = 3e-6, kFoldBandwidth = 2.5e12;
constexpr double kPromptStepSeconds = 1.07e-6;  // 64 keys for 128 vectors
// Contexts that a cluster shares; for longer ones, clusters that do not all run at once cost more than a fold.
constexpr int kClusterDepth = 2048;

// Of the sums of all chunks, with peaks and masses.
constexpr std::int64_t scratch_bytes(std::int64_t vectors, int head_size, int deepest) {
  return vectors * chunks_of(deepest) * (head_size + 2) * 4;
}

// ---- prompt: one block on a multiprocessor ----

constexpr int kMostTreeWords = 4;  // Layout::words: enough for every tree of 256 nodes

// `tiles`: of all kv heads.
inline int prompt_splits(std::int64_t tiles, int deepest, std::int64_t scratch, int multiprocessors) {
  const int most =
      int(std::min<std::int64_t>(multiprocessors / std::max<std::int64_t>(tiles, 1), most_splits(0, deepest)));
  if (most < 2 || scratch > kMostScratch) return 1;
  const double saved = kPromptStepSeconds * deepest / kStep * (1 - 1.0 / most),
               fold = kFoldSeconds + 2.0 * double(scratch) / kFoldBandwidth;
  return saved > fold ? most : 1;
}

// ---- stream: `units` are sequences times kv heads ----

// Blocks that share a context without a cluster: two on a multiprocessor where two fit, so that one waits for memory
// while the other computes.
inline int stream_splits(int units, int blocks, int deepest, int multiprocessors) {
  return std::clamp(std::min(blocks, 2) * multiprocessors / units, 1, std::max(most_splits(0, deepest), 1));
}

// ---- decode: a cluster of blocks, which take whole chunks ----

// The least spans of a block, if at most `cluster` blocks share a context; others are multiples of span_unit().
constexpr int span_unit(int deepest) { return std::max((1 << chunk_shift(std::max(deepest, 1) - 1)) / kDecodeSpan, 1); }
constexpr int least_spans(int deepest, int cluster) {
  const int spans = (std::max(deepest, 1) + kDecodeSpan - 1) / kDecodeSpan, unit = span_unit(deepest);
  return ((spans + cluster - 1) / cluster + unit - 1) / unit * unit;
}

// Bytes of shared memory of a block without a cluster that needs `bytes`. Where `blocks` leave half of a multiprocessor
// free, a block of the next product would start there, and its copies would delay those of attention. Beyond eight rows
// that is a tile product (113 KB a block), which does not fit beside this: 232 KB of 228. The products of fewer rows
// wait less than they gain by starting early.
constexpr std::int64_t decode_memory(std::int64_t bytes, std::int64_t blocks, int rows, const Machine& machine) {
  constexpr std::int64_t kAlone = 116 << 10;
  const bool alone = rows > 8 && blocks <= machine.multiprocessors && 2 * blocks > machine.multiprocessors;
  return alone ? std::max(bytes, std::min(kAlone, machine.block_memory)) : bytes;
}

// ---- tiles ----

// Few long contexts occupy all multiprocessors and many short ones do not need the fold. One block takes about 2.5 us
// for 128 depths of heads of 128; all blocks together are bound by the memory bandwidth. `blocks`: without splits.
inline int tile_splits(double blocks, int tile, int head_size, int deepest, std::int64_t scratch, int multiprocessors) {
  if (scratch > kMostScratch) return 1;
  const double at_once = 2.0 * multiprocessors,
               step = 0.5 * (0.6e-6 + head_size * 15e-9) *
                      (tile > 32   ? 2
                       : tile > 16 ? 1.35
                                   : 1),
               fold = 2e-6 + double(scratch) / 0.8e12;
  const double least = blocks * deepest * head_size * 4 / kReadBandwidth;
  const int units = most_splits(0, deepest), unit_steps = deepest > 0 ? (1 << chunk_shift(deepest - 1)) / kStep : 1;
  double best = INFINITY;
  int splits = 1;
  for (int n = 1; n <= units; ++n) {
    const int each = (units + n - 1) / n;
    if ((units + each - 1) / each != n) continue;
    const double alone = std::ceil(blocks * n / at_once) * each * unit_steps * step,
                 time = std::max(least, alone) + alone / 2 + (n > 1 ? fold : 0);
    if (time < best) best = time, splits = n;
  }
  return splits;
}

}  // namespace foretoken

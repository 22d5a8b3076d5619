// Bytes of shared memory of a block of each kernel, and the depth of its ring. Arithmetic without CUDA headers, so that
// a test on any machine can compare it with the limits of GPUs; the kernels' files assert that their declarations have
// these sizes. This header must not know what a kernel computes.
//
// A block may have 48 KB, or more where the launch asks for it (the device's opt-in limit): 163 KB on capabilities 8.0
// and 8.7, 99 on 8.6, 8.9 and 12.0, 227 on 9.0 and 10.0. Static and dynamic shared memory count together.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>

namespace foretoken {

constexpr std::int64_t kLeastSharedMemory = 99 << 10;     // the smallest opt-in limit of all GPUs from 8.0 on
constexpr std::int64_t kLargestSharedMemory = 227 << 10;  // of capability 9.0, the only one with the kernels for 90a
// Reserved on a multiprocessor for each block, in addition to the block's own.
constexpr std::int64_t kReservedSharedMemory = 1 << 10;

constexpr std::int64_t rounded_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// ---- attention over 64 keys a step, numbers of bf16 ----

// attend_tiles: heads are padded to one of five sizes; 16, 32 or 64 query vectors; a stage holds keys and values of a
// step.
constexpr int tile_head(int head_size) {
  return head_size <= 32 ? 32 : head_size <= 64 ? 64 : head_size <= 96 ? 96 : head_size <= 128 ? 128 : 256;
}
constexpr int tile_groups(int vectors) { return vectors <= 16 ? 1 : vectors <= 32 ? 2 : 4; }
constexpr std::int64_t tile_bytes(int head, int groups, int stages) {
  const std::int64_t rows = 16 * groups;
  return rounded_up(stages * 64 * head * 4 + rows * (head * 2 + 64 * 2 + 4 * 4 + 5 * 4), 128);
}
constexpr int most_tile_stages(int head, int groups) {
  return head >= 256 || (head >= 96 && groups == 4) ? 2 : head >= 96 || groups == 4 ? 3 : 4;
}
constexpr int fewest_tile_stages(int head) { return head >= 256 ? 1 : 2; }
// 0: not even the fewest fit.
constexpr int tile_stages(int head, int groups, std::int64_t limit) {
  if (tile_bytes(head, groups, most_tile_stages(head, groups)) <= limit) return most_tile_stages(head, groups);
  return tile_bytes(head, groups, fewest_tile_stages(head)) <= limit ? fewest_tile_stages(head) : 0;
}

// The same of a quantized cache: heads are padded to 64, 128 or 256; a stage holds codes and scales, and the current
// keys or values are in bf16 besides.
constexpr int coded_tile_stages(int head) { return head >= 256 ? 1 : 2; }
constexpr std::int64_t coded_tile_bytes(int head, int groups) {
  const std::int64_t rows = 16 * groups;
  return rounded_up(coded_tile_stages(head) * (64 * head * 2 + 2 * 64 * 4) + 64 * head * 2 +
                        rows * (head * 2 + 2 * 64 * 2 + 4 * 4 + 5 * 4),
                    128);
}

// attend_prompt: heads of 64 or 128; 128 query vectors; architecture 90a.
constexpr int prompt_stages(int head) { return head > 64 ? 6 : 8; }
constexpr std::int64_t prompt_bytes(int head) {
  return rounded_up(
      prompt_stages(head) * 64 * head * 4 + 128 * head * 2 + 128 + (2 * prompt_stages(head) + 1) * 8 + 5 * 128 * 4,
      1024);
}

// What `peers` warps exchange for each set of 8 query vectors; of codes weights also times the scales of values.
constexpr std::int64_t team_exchange_bytes(bool codes, int peers) {
  return peers * (32 * (codes ? 16 : 8) + 8 * 4) + 8 * 8;
}
// What a block of a cluster receives for each chunk: units of 16 numbers of the head of a set, shared by `blocks`, and
// peaks and masses of every set.
constexpr std::int64_t team_sums_bytes(int head, std::int64_t sets, std::int64_t blocks) {
  return (head / 16 * sets + blocks - 1) / blocks * 512;
}
constexpr std::int64_t team_fold_bytes(int head, std::int64_t sets, std::int64_t blocks) {
  return team_sums_bytes(head, sets, blocks) + sets * 64;
}

// attend_decode: heads padded to 64 or 128; one, two or four sets of query vectors; spans of 128 keys. The n <= splits
// blocks that have spans have at most n * spans chunks in all.
constexpr std::int64_t decode_fixed_bytes(int head, int sets) {
  return rounded_up(
      2 * 128 * head * 2 + sets * (8 * head * 2 + team_exchange_bytes(false, 8)) + 128 * 8 + 4 * 32 * 4 + 8, 128);
}
constexpr std::int64_t decode_bytes(int head, int sets, std::int64_t spans, std::int64_t splits, std::int64_t longest,
                                    std::int64_t group) {
  const std::int64_t used = std::min<std::int64_t>(sets, (longest * group + 7) / 8);
  std::int64_t received = 0;
  for (std::int64_t n = 1; n <= splits; ++n) received = std::max(received, n * spans * team_fold_bytes(head, used, n));
  return decode_fixed_bytes(head, sets) + longest * (head / 2) * 8 + received;
}

// attend_stream: heads of 64 or 128, of bf16 or of codes; a ring of `stages` stages, keys and values of a step
// alternate; barriers; slots of the rows, or scales of each stage; what is exchanged for each of `sets` sets of query
// vectors, and their queries beyond two; the rows themselves in bf16, and their rotations; data that a cluster of
// `splits` blocks sends to each block.
constexpr std::int64_t stream_fixed_bytes(bool codes) { return 2 * 16 * 8 + 16 + (codes ? 16 * 64 * 4 : 64 * 4); }
constexpr std::int64_t attention_stream_bytes(int head, bool codes, std::int64_t stages, std::int64_t sets,
                                              std::int64_t longest, std::int64_t splits, std::int64_t chunks) {
  const std::int64_t of_kernel = sets <= 2 ? sets : sets <= 4 ? 4 : 8;
  std::int64_t received = 0;
  for (std::int64_t n = 2; n <= splits; ++n)  // the blocks of a sequence; fewer than `splits` have a chunk each
    received = std::max(received, (n == splits ? chunks : n) * team_sums_bytes(head, sets, n));
  if (splits > 1) received += chunks * sets * 64;  // peaks, of the longest sequence's chunks
  return stages * 64 * head * (codes ? 1 : 2) + stream_fixed_bytes(codes) +
         of_kernel * (team_exchange_bytes(codes, 4) + (sets > 2 ? head * 16 : 0)) + (codes ? 0 : longest * head * 8) +
         received;
}

// attend_plain, all of it static: queries and sums of heads of up to 512 numbers in f32, 8 warps.
constexpr std::int64_t kScoreBytes = 2 * 4 * 512 * 4;  // score_pages: both parts of four queries
constexpr std::int64_t kPlainBytes = (512 + 8 * 512 + 8 + 8) * 4;

// rope_store_kernel: a sine and a cosine for each pair of a head.
constexpr std::int64_t rope_store_bytes(int head_size) { return head_size / 2 * 8; }

// rms_norm, all of it static: the sum of each of 8 warps; twice where the next row is loaded early.
constexpr std::int64_t kNormBytes = 8 * 4, kNormRowsBytes = 2 * 8 * 4;

// ---- products of boxes: 128 bytes of a row ----

// BoxTile of box_ring.cuh, on architecture 90a: `blocks` on a multiprocessor; `staged` rows of sums that a warpgroup
// brings into the order of the results at once, 0: in the ring's memory, when it is no longer used.
struct ProductTile {
  int rows, outs, blocks, staged = 0;

  constexpr std::int64_t stage() const { return (outs + rows) * 128; }
  // Boxes begin at multiples of 1024; the last warpgroup reads 64 outputs, some of which may be after the stage.
  constexpr std::int64_t outside() const {
    return 1024 + std::max<std::int64_t>(0, (outs + 63) / 64 * 64 * 128 - stage());
  }
  // Two buffers for each warpgroup, of 64 sums a row.
  constexpr std::int64_t staging() const { return std::int64_t(outs + 63) / 64 * 2 * staged * 64 * 4; }
  constexpr int stages() const {
    return int(((blocks == 1 ? 227 : 113) * 1024 - outside() - staging() - lead()) / (stage() + 16));
  }
  constexpr std::int64_t bytes() const { return stages() * stage() + outside() + staging(); }
  constexpr std::int64_t lead() const { return staged > 0 ? 8 : 0; }             // the barrier of the leading warpgroup
  constexpr std::int64_t barriers() const { return 2 * 8 * stages() + lead(); }  // static
  constexpr bool fits(std::int64_t limit) const { return bytes() + barriers() <= limit; }
  constexpr bool operator==(const ProductTile&) const = default;
};
constexpr ProductTile kProductTiles[] = {
    // at most 64 rows of bf16
    {8, 128, 2},
    {16, 128, 2},
    {32, 128, 2},
    {32, 128, 1},
    {32, 144, 1},
    {32, 208, 1},
    {32, 224, 1},
    {64, 128, 2},
    {64, 128, 1},
    {64, 144, 1},
    {64, 208, 1},
    {64, 224, 1},
    // the same of 8 bits
    {16, 64, 1},
    {16, 144, 1},
    {16, 224, 1},
    {64, 64, 1},
    // many rows
    {64, 128, 1, 16},
    {96, 128, 1, 16},
    {96, 192, 1, 16},
    {128, 128, 1, 16},
    {128, 192, 1, 16},
    {192, 128, 1, 16},
    {256, 128, 1, 16}};

// CodedTile<rows, outs> of coded_tile.cu: one block on a multiprocessor of architecture 90a. A stage holds 128 inputs:
// of x, and cells of the outputs in eights, `cell` bytes each; boxes of x begin at multiples of 1024.
struct CodedTileSize {
  int rows, outs;

  static constexpr int kFewestStages = 3, kMostStages = 16;
  static constexpr std::int64_t kStaticBytes = 2 * 8 * kMostStages + 16 * 4;  // barriers, a table of numbers
  constexpr std::int64_t row_bytes() const { return rows * 256; }
  constexpr std::int64_t stage(std::int64_t cell) const { return rounded_up(row_bytes() + outs / 8 * cell, 1024); }
  constexpr std::int64_t bytes(std::int64_t cell, std::int64_t stages) const { return stages * stage(cell) + 1024; }
  constexpr std::int64_t stages(std::int64_t cell, std::int64_t limit) const {
    return std::min<std::int64_t>(kMostStages, (limit - kStaticBytes - 1024) / stage(cell));
  }
  constexpr bool operator==(const CodedTileSize&) const = default;
};
constexpr CodedTileSize kCodedTiles[] = {{32, 144}, {32, 224}, {64, 144}, {64, 224}};

// CodedWideTile<rows> of coded_wide_ring.cuh: 128 outputs, one block on a multiprocessor. A ring of boxes of x, and one
// of cells; `cell` bytes each, 16 for 128 inputs. Boxes begin at multiples of 1024; then buffers as ProductTile's.
struct CodedWideSize {
  int rows;

  static constexpr int kOuts = 128, kStaged = 16, kMostBoxes = 12, kMostPieces = 6, kFewestBoxes = 3;
  static constexpr std::int64_t kStaticBytes = 2 * 8 * (kMostBoxes + kMostPieces) + 16 * 4 + 2 * 4,
                                kStaging = kOuts / 64 * 2 * kStaged * 64 * 4;  // static: barriers, a table, two flags
  constexpr int pieces() const { return rows > 128 ? 3 : 5; }
  constexpr std::int64_t fixed(std::int64_t cell) const { return 1024 + kStaging + pieces() * kOuts / 8 * cell; }
  constexpr std::int64_t boxes(std::int64_t cell, std::int64_t limit) const {
    return std::min<std::int64_t>(kMostBoxes, (limit - kStaticBytes - fixed(cell)) / (rows * 128));
  }
  constexpr std::int64_t bytes(std::int64_t cell, std::int64_t boxes) const { return boxes * rows * 128 + fixed(cell); }
  constexpr bool operator==(const CodedWideSize&) const = default;
};
constexpr CodedWideSize kCodedWides[] = {{96}, {128}, {192}, {256}};
constexpr bool coded_wides_fit(std::int64_t cell, std::int64_t limit) {
  return std::all_of(std::begin(kCodedWides), std::end(kCodedWides),
                     [&](const CodedWideSize& t) { return t.boxes(cell, limit) >= CodedWideSize::kFewestBoxes; });
}

// Whether all of them fit: the tile size depends on a product's shape, but whether the route is available must not.
template <class Tiles> constexpr bool all_fit(const Tiles& tiles, std::int64_t limit) {
  return std::all_of(std::begin(tiles), std::end(tiles), [&](const auto& t) { return t.fits(limit); });
}
template <class Tiles, class Tile> constexpr bool has(const Tiles& tiles, const Tile& tile) {
  return std::find(std::begin(tiles), std::end(tiles), tile) != std::end(tiles);
}

// Rings of pieces of 16 outputs, one for each warp; partial sums of the warps of a tile; x. The rings of stream_kernel.
constexpr std::int64_t kStreamStaticBytes = 2 << 10;  // at most: barriers of x, and the memory of the norm of one row
constexpr std::int64_t streamed_x_bytes(bool normed, std::int64_t rows, std::int64_t in, std::int64_t columns,
                                        std::int64_t depth) {
  return std::max(rows * (depth + 8) * 2 * (depth < columns ? 2 : 1), normed ? 4 * in : 0);
}
// `piece`: bytes of a piece.
constexpr std::int64_t streamed_bytes(std::int64_t warps, std::int64_t ring, std::int64_t piece, bool adds_slices,
                                      std::int64_t rows, std::int64_t x_bytes) {
  return 1024 + warps * (ring * piece + rounded_up(8 * ring, 16)) +
         (adds_slices ? warps * (rows <= 8 ? 1 : 2) * 512 : 0) + x_bytes;
}

// The kernels of rounded_rows.cu, all of it static, at most: the greatest magnitude of each of 32 warps, and the sums
// of the 8 warps of a norm.
constexpr std::int64_t kRoundBytes = (32 + 8) * 4;

// exact_kernel, all of it static: 16 inputs of 64 rows and 64 outputs.
constexpr std::int64_t kExactBytes = 2 * 16 * 68 * 4;

// ---- mixtures of experts ----

// grouped_kernel: a ring of stages, each of 64 outputs and 8, 16 or 64 rows of x of 64 inputs (codes: 128), at most
// eight of them and at least two. Two blocks share a multiprocessor of 9.0.
constexpr std::int64_t kMostGroupedBytes = 96 << 10;
constexpr int kMostGroupedStages = 8, kFewestGroupedStages = 2;
constexpr int grouped_stages(std::int64_t stage, std::int64_t limit) {
  return int(std::min<std::int64_t>(kMostGroupedStages, std::min(limit, kMostGroupedBytes) / stage));
}
// `cell`: bytes of a cell of codes; 0: numbers of bf16.
constexpr std::int64_t grouped_stage_bytes(std::int64_t cell, std::int64_t rows) {
  return cell > 0 ? 8 * cell + rows * 256 : 64 * 128 + rows * 128;
}

// route_kernel and group_kernel, all of it static: the pairs of each expert; the experts of the first pairs.
constexpr int kMostRoutedExperts = 4096, kRouteCounts = 8192;
constexpr std::int64_t kRouteBytes = 4 * (kMostRoutedExperts + kRouteCounts);

// ---- rows of a vocabulary ----

// A crew of blocks: four f64 sums for each tile of 256 tokens, rounded up to fours; in addition, what its kernels
// declare statically.
constexpr std::int64_t crew_bytes(std::int64_t vocab) { return 4 * 8 * rounded_up((vocab + 255) / 256, 4); }
constexpr std::int64_t kMostCrewStaticBytes = 20 << 10;

}  // namespace foretoken

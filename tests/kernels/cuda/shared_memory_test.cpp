// Shared memory of every kernel against the limits of the supported GPUs. Needs no GPU: the kernels' files assert that
// their declarations have the sizes of kernels/cuda/shared_memory.h.
#include "kernels/cuda/shared_memory.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/source.h"

namespace foretoken::test {
namespace {

// The opt-in limit of a block in bytes (CUDA programming guide, technical specifications by compute capability), and
// whether the GPU has warpgroup products.
struct Gpu {
  int capability;
  std::int64_t limit;
  bool warpgroups = false;
};
constexpr Gpu kGpus[] = {{80, 163 << 10},       {86, 99 << 10},   {87, 163 << 10}, {89, 99 << 10},
                         {90, 227 << 10, true}, {100, 227 << 10}, {120, 99 << 10}};
constexpr std::int64_t kStaticLimit = 48 << 10;  // of static shared memory

TEST(SharedMemory, limits_are_those_that_kernels_are_planned_for) {
  std::int64_t least = kGpus[0].limit;
  for (const Gpu& gpu : kGpus) {
    least = std::min(least, gpu.limit);
    if (gpu.warpgroups) {
      EXPECT_EQ(gpu.limit, kLargestSharedMemory);
    }
  }
  EXPECT_EQ(least, kLeastSharedMemory);
}

TEST(SharedMemory, attention_by_tiles_fits_on_every_gpu_with_heads_of_every_size) {
  for (const Gpu& gpu : kGpus)
    for (int head_size = 8; head_size <= 256; head_size += 8)
      for (const int vectors : {1, 16, 17, 32, 33, 64}) {
        if (head_size > 128 && vectors > 32) continue;  // choose_tile() gives such heads 32 at most
        const int head = tile_head(head_size), groups = tile_groups(vectors),
                  stages = tile_stages(head, groups, gpu.limit);
        ASSERT_GT(stages, 0) << gpu.capability << ", heads of " << head_size << ", " << vectors << " vectors";
        EXPECT_LE(tile_bytes(head, groups, stages), gpu.limit) << gpu.capability << ", heads of " << head_size;
      }
  EXPECT_GT(tile_bytes(128, 1, 3), kLeastSharedMemory) << "three stages were the fault that this test is for";
  EXPECT_EQ(tile_stages(128, 1, kLeastSharedMemory), 2);
  EXPECT_EQ(tile_stages(128, 1, kLargestSharedMemory), 3);
  EXPECT_EQ(tile_stages(256, 2, kLeastSharedMemory), 1);
}

TEST(SharedMemory, attention_over_codes_fits_on_every_gpu) {
  for (const int head : {64, 128, 256})
    for (int groups = 1; groups <= (head <= 128 ? 4 : 2); groups *= 2)
      EXPECT_LE(coded_tile_bytes(head, groups), kLeastSharedMemory) << "heads of " << head << ", " << groups;
  for (const int head : {64, 128})
    EXPECT_LE(attention_stream_bytes(head, true, 16, 4, 32, 1, 256), kLargestSharedMemory);
  EXPECT_LE(attention_stream_bytes(128, true, 4, 4, 32, 1, 256), kLeastSharedMemory);
}

// What the stream kernel receives: behind the peaks of all chunks of the longest sequence, the sums of a sequence's
// own.
TEST(SharedMemory, of_a_cluster_holds_what_sequences_of_fewer_chunks_send) {
  for (const int head : {64, 128})
    for (const int sets : {1, 2, 3, 4, 8})
      for (int splits = 2; splits <= 16; ++splits)
        for (const int chunks : {splits, 2 * splits - 1, 3 * splits}) {
          const std::int64_t received = attention_stream_bytes(head, false, 4, sets, 16, splits, chunks) -
                                        attention_stream_bytes(head, false, 4, sets, 16, 1, chunks);
          for (int own = 1; own <= chunks; ++own) {
            const int blocks = std::min(own, splits), units = (head / 16 * sets + blocks - 1) / blocks;
            if (blocks == 1) continue;
            EXPECT_GE(received, chunks * sets * 8 * 8 + own * units * 512)
                << head << ", " << sets << " sets, " << own << " of " << chunks << " chunks, " << splits << " blocks";
          }
        }
}

TEST(SharedMemory, norms_and_attention_of_any_numbers_and_heads_fit_without_asking) {
  EXPECT_LE(kPlainBytes, kStaticLimit);
  EXPECT_LE(rope_store_bytes(512), kStaticLimit);
  EXPECT_LE(std::max(kNormBytes, kNormRowsBytes), kStaticLimit);
}

// Where these do not fit, the tiles kernel is used.
TEST(SharedMemory, one_row_of_one_sequence_is_decoded_by_the_fast_kernels_on_every_gpu_that_has_them) {
  for (const Gpu& gpu : kGpus) {
    if (gpu.capability < 90) continue;
    for (const int head : {64, 128})
      for (const int group : {1, 4, 8, 16}) {
        EXPECT_LE(decode_bytes(head, group <= 8 ? 1 : 2, 1, 8, 1, group), gpu.limit)
            << gpu.capability << ", heads of " << head;
        EXPECT_LE(attention_stream_bytes(head, false, 2, (group + 7) / 8, 1, 1, 256), gpu.limit)
            << gpu.capability << ", heads of " << head;
      }
  }
}

TEST(SharedMemory, kernels_of_warpgroups_fit_where_those_are_and_are_not_taken_where_they_do_not_fit) {
  for (const Gpu& gpu : kGpus) {
    if (!gpu.warpgroups) continue;
    EXPECT_TRUE(all_fit(kProductTiles, gpu.limit)) << gpu.capability;
    for (const int head : {64, 128}) EXPECT_LE(prompt_bytes(head), gpu.limit) << gpu.capability;
  }
  constexpr std::int64_t kLargestCell = 1024 + 8 * 8 * 12;  // 8 bits, all parts of a scale for each 16 inputs
  for (const CodedTileSize& t : kCodedTiles)
    EXPECT_GE(t.stages(kLargestCell, kLargestSharedMemory), CodedTileSize::kFewestStages) << t.rows << ' ' << t.outs;
  for (const CodedWideSize& t : kCodedWides) {
    for (const std::int64_t cell : {std::int64_t(528), std::int64_t(1040), kLargestCell}) {
      const std::int64_t boxes = t.boxes(cell, kLargestSharedMemory);
      EXPECT_GE(boxes, cell < 1100 ? 5 : CodedWideSize::kFewestBoxes) << t.rows << ' ' << cell;
      EXPECT_LE(t.bytes(cell, boxes) + CodedWideSize::kStaticBytes, kLargestSharedMemory) << t.rows << ' ' << cell;
    }
    EXPECT_LE(t.pieces(), CodedWideSize::kMostPieces);
  }
  EXPECT_TRUE(coded_wides_fit(kLargestCell, kLargestSharedMemory));
  EXPECT_FALSE(coded_wides_fit(528, kLeastSharedMemory));
  EXPECT_FALSE(all_fit(kProductTiles, kLeastSharedMemory));
}

// While the sums of a tile are written, at least three boxes of the next are on their way.
TEST(SharedMemory, tiles_of_many_rows_have_buffers_for_sums_and_a_ring_of_four_stages) {
  int tiles = 0;
  for (const ProductTile& t : kProductTiles) {
    if (t.staged == 0) continue;
    ++tiles;
    EXPECT_GE(t.stages(), 4) << t.rows << ' ' << t.outs;
    EXPECT_EQ(t.staging(), (t.outs / 64) * 2 * 16 * 64 * 4) << "two buffers of 16 rows for each warpgroup";
  }
  EXPECT_EQ(tiles, 7);
  EXPECT_EQ((ProductTile{256, 128, 1, 16}.stages()), 4);
}

// The smallest plan of stream_plan(): 4 warps, or the 8 that norm a row.
TEST(SharedMemory, streamed_products_fit_on_every_gpu) {
  for (const Gpu& gpu : kGpus)
    for (const std::int64_t in : {1024, 4096, 8192, 14336, 28672}) {
      const std::int64_t x = streamed_x_bytes(false, 16, in, in, 256),
                         normed = streamed_x_bytes(true, 1, 8192, 8192, 8192);
      EXPECT_LE(streamed_bytes(4, 3, 64 * 32, false, 16, x) + kStreamStaticBytes, gpu.limit)
          << gpu.capability << ' ' << in;
      EXPECT_LE(streamed_bytes(8, 3, 64 * 32, true, 1, normed) + kStreamStaticBytes, gpu.limit) << gpu.capability;
    }
  EXPECT_LE(kExactBytes, kStaticLimit);
}

TEST(SharedMemory, grouped_products_have_at_least_two_stages_on_every_gpu) {
  constexpr std::int64_t kLargestCell = 1024 + 8 * 8 * 12;  // 8 bits, all parts of a scale for each 16 inputs
  for (const Gpu& gpu : kGpus)
    for (const std::int64_t cell : {std::int64_t(0), std::int64_t(528), kLargestCell})
      for (const std::int64_t rows : {8, 16, 64}) {
        const std::int64_t stage = grouped_stage_bytes(cell, rows);
        const int stages = grouped_stages(stage, gpu.limit);
        EXPECT_GE(stages, kFewestGroupedStages) << gpu.capability << ", cells of " << cell << ", rows " << rows;
        EXPECT_LE(stages * stage, gpu.limit);
      }
  EXPECT_LE(kRouteBytes, kStaticLimit);
}

TEST(SharedMemory, rows_of_every_vocabulary_in_use_fit_on_every_gpu) {
  for (const Gpu& gpu : kGpus)
    for (const std::int64_t vocab : {32000, 128256, 151936, 202048, 262208, 400000})
      EXPECT_LE(crew_bytes(vocab) + kMostCrewStaticBytes, gpu.limit) << gpu.capability << ", vocabulary of " << vocab;
  EXPECT_LE(kMostCrewStaticBytes, kStaticLimit);
}

// A new kernel with shared memory needs a size in shared_memory.h, a static_assert, a test above and a line here.
TEST(SharedMemory, every_kernel_that_declares_some_is_known_here) {
  const std::map<std::string, int> known = {
      {"attention/store_codes.cu", 1},        // rope_store_bytes
      {"attention/decode.cuh", 1},            // decode_bytes
      {"attention/mass.cu", 2},               // three f32 arrays of kMassThreads: at most 1 KB
      {"attention/plain.cu", 1},              // kPlainBytes
      {"attention/prompt_tree.cuh", 1},       // prompt_bytes
      {"attention/rope_part.cu", 1},          // 8 bytes for each pair of a head's numbers: at most 1 KB
      {"attention/rope_store.cu", 1},         // rope_store_bytes
      {"attention/select.cu", 3},             // kScoreBytes; two small arrays of keep_pages: at most 1 KB
      {"attention/stream.cuh", 1},            // attention_stream_bytes
      {"attention/tiles.cuh", 1},             // tile_bytes
      {"cuda_backend.cu", 1},                 // 128 bytes by which a build is identified
      {"distributions/cuda_lane.cuh", 2},     // crew_bytes, kMostCrewStaticBytes
      {"distributions/distributions.cu", 2},  // the same
      {"distributions/rank.cu", 2},           // the same
      {"experts/grouped_kernel.cuh", 1},      // grouped_stage_bytes
      {"experts/route.cu", 1},                // kRouteBytes
      {"elementwise/rms_norm.cu", 2},         // kNormBytes, kNormRowsBytes
      {"products/coded_tile.cu", 3},          // CodedTileSize
      {"products/coded_wide.cu", 4},          // CodedWideSize
      {"products/exact_product.cu", 1},       // kExactBytes
      {"products/stream_input.cuh", 1},       // kNormBytes of kStreamStaticBytes
      {"products/rounded_rows.cu", 2},        // kRoundBytes
      {"products/stream_kernel.cuh", 2},      // streamed_bytes, kStreamStaticBytes
      {"products/tile_kernel.cuh", 4},        // ProductTile
      {"products/wide_kernel.cuh", 2},        // the same
  };
  std::map<std::string, int> found;
  for (const test::SourceFile& file : test::read_sources({"kernels/cuda"}, {".cu", ".cuh"})) {
    const std::string code = test::code_only(file.text), word = "__shared__", folder = "kernels/cuda/";
    for (std::size_t at = code.find(word); at != std::string::npos; at = code.find(word, at + 1))
      ++found[file.path.substr(folder.size())];
  }
  EXPECT_EQ(found, known);
}

}  // namespace
}  // namespace foretoken::test

// Chunks of a context, and how blocks share them: for every depth and number of blocks, every depth belongs to one
// chunk and every chunk to one block. Needs no GPU.
#include <gtest/gtest.h>

#include "kernels/cuda/attention/parts.h"
#include "kernels/cuda/attention/plans.h"

namespace foretoken::test {
namespace {

constexpr int kDeepest = 1 << 18;

TEST(AttentionPlans, every_depth_belongs_to_one_chunk_of_whole_steps) {
  int chunk = -1, begin = 0;
  for (int depth = 0; depth < kDeepest; ++depth) {
    const bool begins = chunk < 0 || chunk_of(depth) != chunk;
    ASSERT_EQ(begins, begins_chunk(depth)) << depth;
    if (!begins) continue;
    const int size = 1 << chunk_shift(depth);
    ASSERT_EQ(chunk_of(depth), chunk + 1) << depth;
    ASSERT_EQ(chunk_begin(chunk + 1), depth);
    ASSERT_EQ(depth % size, 0) << depth;
    ASSERT_EQ(size % kStep, 0) << depth;
    ASSERT_GE(size, chunk < 0 ? 0 : 1 << chunk_shift(begin)) << "a unit of the longest chunk is whole chunks";
    if (chunk >= 0) {
      ASSERT_EQ(depth - begin, 1 << chunk_shift(begin));
      ASSERT_EQ(chunks_of(depth), chunk + 1);
    }
    begin = depth, ++chunk;
  }
  EXPECT_EQ(chunks_of(0), 0);
  EXPECT_EQ(chunks_of(1), 1);
  EXPECT_EQ(chunks_of(32768), 64);
}

// Of the depths [low, high) by `splits` blocks; returns the depths of the block that has most.
int longest_of(int low, int high, int splits) {
  int at = low, longest = 0, used = 0;
  for (int i = 0; i < splits; ++i) {
    const DepthRange range = split_of(low, high, splits, i);
    if (range.empty()) continue;
    EXPECT_EQ(used, i) << "blocks without depths come last";
    ++used;
    EXPECT_EQ(range.begin, at);
    EXPECT_TRUE(i == 0 || begins_chunk(range.begin)) << range.begin;
    longest = std::max(longest, range.end - range.begin), at = range.end;
  }
  EXPECT_EQ(at, high);
  EXPECT_EQ(used, std::min(splits, most_splits(low, high)));
  return longest;
}

TEST(AttentionPlans, blocks_share_a_context_by_whole_chunks_and_about_evenly) {
  for (int high : {1,    63,   64,   127,  128,   129,   1000,  1024,  2047,  2048,   2049,  2304,
                   4095, 4096, 4097, 8200, 16383, 16384, 16385, 17409, 33000, 131072, 200001})
    for (int low : {0, 1, 64, 130, 1023, 2047, 2050, 4000, 8191, 16000, 16384, 32000}) {
      if (low >= high) continue;
      const int unit = 1 << chunk_shift(high - 1);
      for (int splits = 1; splits <= 140; splits += splits < 20 ? 1 : 13) {
        SCOPED_TRACE(::testing::Message() << low << " to " << high << " by " << splits);
        const int used = std::min(splits, most_splits(low, high)), longest = longest_of(low, high, splits);
        ASSERT_FALSE(::testing::Test::HasFailure());
        ASSERT_LE(longest, (most_splits(low, high) + used - 1) / used * unit);
      }
    }
  EXPECT_TRUE(split_of(100, 100, 4, 0).empty());
  EXPECT_TRUE(split_of(100, 50, 1, 0).empty());
  EXPECT_EQ(split_of(70, 50, 3, 1).begin, 50);
}

TEST(AttentionPlans, a_block_of_the_decode_route_takes_whole_chunks) {
  for (int deepest = 1; deepest < 40000; deepest += 37) {
    const int unit = span_unit(deepest), least = least_spans(deepest, 16);
    EXPECT_EQ(least % unit, 0);
    EXPECT_GE(std::int64_t(least) * kDecodeSpan * 16, deepest);
    for (int spans = least; spans <= 4 * unit; spans += unit)
      for (int depth = 0; depth < deepest; depth += spans * kDecodeSpan) ASSERT_TRUE(begins_chunk(depth)) << depth;
  }
  EXPECT_EQ(least_spans(1100, 16), 1);
  EXPECT_EQ(least_spans(2048, 16), 1);
  EXPECT_EQ(least_spans(2049, 16), 2);
  EXPECT_EQ(least_spans(4096, 16), 2);
}

// Of sixteen sequences with 8 kv heads, and of fewer rows.
TEST(AttentionPlans, no_block_of_a_tile_product_starts_beside_decode_blocks_that_leave_room_for_it) {
  const Machine h200{132, 16, 227 << 10, 228 << 10}, small{132, 16, 99 << 10, 100 << 10};
  constexpr std::int64_t kNeeds = 78 << 10, kProduct = 113 << 10, kReserved = 1 << 10;
  EXPECT_LT(kNeeds + kProduct + 2 * kReserved, h200.multiprocessor_memory);
  EXPECT_GT(decode_memory(kNeeds, 128, 16, h200) + kProduct + 2 * kReserved, h200.multiprocessor_memory);
  EXPECT_EQ(decode_memory(kNeeds, 128, 16, small), small.block_memory);
  EXPECT_EQ(decode_memory(kNeeds, 256, 16, h200), kNeeds) << "two blocks on a multiprocessor";
  EXPECT_EQ(decode_memory(kNeeds, 64, 8, h200), kNeeds) << "products of few rows start early";
  EXPECT_EQ(decode_memory(130 << 10, 128, 16, h200), 130 << 10);
}

// One sequence of a model with 8 kv heads.
TEST(AttentionPlans, long_contexts_of_one_sequence_fill_the_machine) {
  constexpr int kMultiprocessors = 132;
  for (const int deepest : {8192 + 8, 9216, 32768 + 8, 36864, 131072}) {
    const int few = stream_splits(8, 4, deepest, kMultiprocessors),
              most = stream_splits(8, 1, deepest, kMultiprocessors);
    EXPECT_GE(8 * few, kMultiprocessors) << deepest;
    EXPECT_LE(8 * few, 2 * kMultiprocessors) << deepest;
    EXPECT_LE(8 * most, kMultiprocessors) << deepest;
    EXPECT_GE(10 * 8 * most, 9 * kMultiprocessors) << deepest;
    for (const int rows : {32, 64}) {
      const int tiles = 8 * rows / 32;
      const std::int64_t scratch = scratch_bytes(rows * 32, 128, deepest);
      const int splits = prompt_splits(tiles, deepest, scratch, kMultiprocessors);
      EXPECT_GE(10 * tiles * splits, 9 * kMultiprocessors) << deepest << ", " << rows << " rows";
      EXPECT_LE(tiles * splits, kMultiprocessors);
    }
  }
}

// Sequences and rows without ancestors, then with.
std::vector<Part> parts_of(int straight, int straight_rows, int trees, int tree_rows) {
  Layout l;
  l.rows = straight_rows + tree_rows, l.sequences = straight + trees, l.words = trees > 0;
  l.deepest = 900, l.longest = 64;
  if (trees > 0 && straight > 0) l.straight = {straight_rows, straight, 700, (straight_rows + straight - 1) / straight};
  return foretoken::parts_of(l);
}

TEST(AttentionPlans, rows_beside_trees_are_a_call_of_their_own_unless_they_are_few) {
  for (const auto& [straight, rows, trees, tree_rows, parts] : {std::tuple{64, 64, 0, 0, 1},
                                                                {0, 0, 64, 2048, 1},
                                                                {63, 63, 1, 32, 2},
                                                                {1, 1, 63, 2016, 1},
                                                                {1, 512, 10, 320, 2},
                                                                {8, 8, 8, 512, 2},
                                                                {4, 0, 0, 0, 1}}) {
    const std::vector<Part> all = parts_of(straight, rows, trees, tree_rows);
    SCOPED_TRACE(::testing::Message() << straight << " sequences beside " << trees << " trees");
    ASSERT_EQ(all.size(), std::size_t(parts));
    EXPECT_EQ(all.back().first_sequence + all.back().sequences, straight + trees);
    EXPECT_EQ(all.back().first_row + all.back().rows, rows + tree_rows);
    EXPECT_EQ(all.back().words, trees > 0);
    if (parts == 1) continue;
    EXPECT_EQ(all[0].words, 0);
    EXPECT_EQ(all[0].deepest, 700);
    EXPECT_EQ(all[1].first_sequence, all[0].sequences);
    EXPECT_EQ(all[1].first_row, all[0].rows);
  }
}

TEST(AttentionPlans, contexts_are_not_shared_where_that_does_not_pay) {
  EXPECT_EQ(prompt_splits(8, 256, scratch_bytes(32 * 32, 128, 256), 132), 1) << "short";
  EXPECT_EQ(prompt_splits(512, 4096, scratch_bytes(2048 * 32, 128, 4096), 132), 1) << "enough tiles";
  EXPECT_EQ(prompt_splits(64, 8192, scratch_bytes(256 * 32, 128, 8192), 132), 1) << "more sums than keys";
  EXPECT_EQ(prompt_splits(8, 1 << 20, kMostScratch + 1, 132), 1) << "too much memory";
  EXPECT_EQ(tile_splits(1024, 64, 128, 1024, scratch_bytes(4096 * 32, 128, 1024), 132), 1);
  EXPECT_GT(tile_splits(8, 64, 128, 8192, scratch_bytes(16 * 32, 128, 8192), 132), 4);
  EXPECT_EQ(stream_splits(200, 3, 8192, 132), 1);
}

}  // namespace
}  // namespace foretoken::test

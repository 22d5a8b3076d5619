// rope_attend on the GPU equals rope_store and then attend, bit for bit, in its result and in the pages: short and long
// contexts, few rows of several sequences, windows, rows of padding.
#include <gtest/gtest.h>

#include "kernels/staging.h"
#include "tests/kernels/cuda/rope_attend.h"

namespace foretoken::test {
namespace {

using Case = RopeAttendCase;
using Rows = RopeAttendRows;

void compare(const Case& c, const Rows& given, unsigned seed) { compare_rope_attend(c, given, seed); }

TEST(RopeAttend, OneRowOfOneSequence) {
  for (int slot : {0, 1, 15, 63, 64, 127, 128, 500, 1023, 1024, 1500, 2040, 2047, 2048, 3000})
    compare({}, {{slot}, {1}}, unsigned(slot));
  for (int bound : {129, 1000, 2000, 2049, 5000, 9000}) compare({.bound = bound}, {{700}, {1}}, unsigned(bound));
}

TEST(RopeAttend, HeadsAndGroups) {
  for (int size : {8, 32, 64, 80, 96, 120, 128, 256}) compare({.head_size = size}, {{300}, {1}}, unsigned(size));
  for (int group : {1, 2, 3, 5, 7, 8, 16, 17})
    for (int size : {64, 128})
      compare({.head_size = size, .group = group}, {{250}, {std::max(1, 16 / group)}}, unsigned(group));
}

TEST(RopeAttend, RowsAcrossChunksAndPages) {
  for (int page_rows : {1, 5, 16, 24, 64, 96})
    for (int begin : {0, 120, 126, 127, 128, 250, 1021})
      compare({.page_rows = page_rows}, {{begin}, {4}}, unsigned(begin + page_rows));
}

TEST(RopeAttend, SeveralSequencesAndPadding) {
  compare({.padding = 2}, {{5, 900, 129, 400}, {1, 1, 1, 1}}, 1);
  compare({.group = 2, .padding = 3}, {{5, 900, 0, 400, 127}, {3, 1, 0, 8, 2}}, 2);
  compare({.head_size = 64, .kv_heads = 8}, {{1000, 20, 512, 1, 128, 127, 600, 1023}, {1, 1, 1, 1, 1, 1, 1, 1}}, 3);
}

TEST(RopeAttend, Windows) {
  for (int window : {1, 33, 128, 300, 5000}) {
    compare({.window = window}, {{777}, {4}}, unsigned(window));
    compare({.head_size = 64, .window = window}, {{2600, 3}, {1, 1}}, unsigned(window));
  }
}

// `count` sequences of up to 150 slots, each with `most` rows or a few less.
Rows many(int count, int most, unsigned seed) {
  Rows rows;
  std::mt19937 engine(seed);
  for (int i = 0; i < count; ++i)
    rows.begins.push_back(int(engine() % 150)), rows.rows.push_back(most - int(engine() % unsigned((most + 1) / 2)));
  return rows;
}

// As many sequences as occupy the GPU with several rows each, and more sequences of one row each than the decode kernel
// supports; of all lengths.
TEST(RopeAttend, ManySequences) {
  for (int head_size : {64, 128}) {
    for (int most : {1, 5, 16}) {
      const Rows rows = many(most == 1 ? 70 : 30, most, unsigned(head_size + most));
      compare({.head_size = head_size, .kv_heads = 8, .padding = 1}, rows, unsigned(most));
      if (most == 5) compare({.head_size = head_size, .kv_heads = 8, .window = 40}, rows, unsigned(most));
      for (const int page_rows : {24, 56, 96})  // whole boxes of 8 or of 32 rows
        compare({.head_size = head_size, .kv_heads = 8, .page_rows = page_rows}, rows, unsigned(page_rows));
    }
    compare({.head_size = head_size, .group = 7, .kv_heads = 8, .padding = 1}, many(20, 8, unsigned(head_size)), 7);
  }
}

// Every number of sets of 8 vectors, with and without vectors that are missing in the last: sequences whose blocks are
// clusters (of eight contexts more than the decode route takes), sequences of one block each, and a context that blocks
// share without a cluster.
TEST(RopeAttend, EveryNumberOfSets) {
  for (int head_size : {64, 128})
    for (const auto& [group, rows] : {std::pair{8, 1},
                                      {3, 3},
                                      {8, 2},
                                      {17, 1},
                                      {8, 3},
                                      {5, 5},
                                      {8, 4},
                                      {11, 3},
                                      {8, 5},
                                      {12, 4},
                                      {7, 7},
                                      {8, 7},
                                      {19, 3},
                                      {16, 4}}) {
      Rows few{{1100, 20, 512, 1, 128, 127, 600, 1023}, {}}, many;
      for (int i = 0; i < 8; ++i) few.rows.push_back(std::max(1, rows - i % 3));
      for (int i = 0; i < 20; ++i) many.begins.push_back(i * 67 % 300), many.rows.push_back(std::max(1, rows - i % 4));
      compare({.head_size = head_size, .group = group, .kv_heads = 8}, few, unsigned(group + rows));
      compare({.head_size = head_size, .group = group, .kv_heads = 8, .window = 90}, many, unsigned(group + rows));
      compare({.head_size = head_size, .group = group}, {{2500, 40}, {rows, 1}}, unsigned(group * rows));
    }
}

// Sequences of fewer chunks than the cluster has blocks, beside one that has a chunk for each: what the others send is
// most here.
TEST(RopeAttend, SequencesOfFewerChunksThanBlocks) {
  for (const int last : {100, 300, 500, 640, 700, 800})
    for (const int rows : {3, 8, 16, 32})
      compare({.group = 2, .kv_heads = 8}, {{900, 880, last}, {rows, rows, rows}}, unsigned(last + rows));
}

// So many sequences that each has a block on its own multiprocessor: the ring has its greatest depth, and one context
// passes through it several times.
TEST(RopeAttend, OneLongContextAmongMany) {
  for (const auto& [head_size, most] : {std::pair{64, 1}, std::pair{64, 5}, std::pair{128, 5}}) {
    Rows rows = many(16, most, unsigned(head_size + most));
    rows.begins[3] = 1100;
    compare({.head_size = head_size, .kv_heads = 8}, rows, unsigned(most));
  }
}

TEST(RopeAttend, SeveralRows) {
  compare({}, {{1000, 130, 5}, {8, 3, 8}}, 1);
  compare({.head_size = 64, .group = 8, .padding = 3}, {{500, 0}, {8, 4}}, 2);
  compare({.window = 100}, {{700, 250}, {8, 8}}, 3);
  compare({.bound = 5000}, {{700}, {8}}, 4);
  compare({.group = 7}, {{500, 0, 126}, {8, 4, 8}}, 5);
}

// Verification of a draft, with the engine's layout: the numbers of rows and of the longest sequence's rows are even
// and above 8, and the additional row belongs to a table of padding.
void one_text(Case c, int begin, int rows) {
  if (rows > 8 && rows % 2 == 1) c.padding = 1, c.most = rows + 1;
  compare(c, {{begin}, {rows}}, unsigned(c.head_size + c.group + begin + rows));
}

TEST(RopeAttend, SeveralRowsOfOneText) {
  for (int head_size : {16, 32, 48, 64, 80, 112, 128})
    for (int rows : {5, 8, 9, 16}) one_text({.head_size = head_size, .ahead = rows}, 700 + head_size, rows);
  for (int head_size : {64, 128})
    for (int begin : {0, 60, 121, 1020, 2044}) one_text({.head_size = head_size, .kv_heads = 8}, begin, 8);
  for (int group : {1, 2, 3, 7, 12}) one_text({.group = group}, 250, std::min(32, 63 / group));
  for (int window : {1, 100, 300}) one_text({.window = window}, 701, 8);
}

// Blocks of two tiles with two chunks each, in clusters of more than 8; windows that begin within a block's chunks;
// contexts shorter than the bound.
TEST(RopeAttend, SeveralRowsBehindALongContext) {
  for (int head_size : {64, 128}) {
    for (int begin : {2040, 2500, 3071, 4080})
      for (int rows : {8, 9, 16}) one_text({.head_size = head_size}, begin, rows);
    for (int window : {300, 1000}) one_text({.head_size = head_size, .window = window}, 2600, 8);
    one_text({.head_size = head_size, .bound = 2100}, 1500, 9);
    one_text({.head_size = head_size, .kv_heads = 8}, 1500, 16);
  }
  // Several sequences, and pages that do not divide into boxes.
  compare({.head_size = 80, .page_rows = 5}, {{1000, 130, 5}, {8, 3, 8}}, 1);
}

TEST(RopeAttend, ContextsSharedWithoutClusters) {
  for (int head_size : {64, 128}) {
    for (int begin : {2047, 4095, 4096, 6000, 8190, 16380})
      for (int rows : {1, 8}) one_text({.head_size = head_size}, begin, rows);
    for (int rows : {15, 32}) one_text({.head_size = head_size}, 8185, rows);  // 32: a prompt
    one_text({.head_size = head_size, .window = 3000, .bound = 40000}, 9000, 2);
    compare({.head_size = head_size, .group = 7, .padding = 2}, {{8200, 5, 2100, 0}, {1, 8, 4, 1}}, 1);
  }
}

TEST(RopeAttend, Prompts) {
  for (int head_size : {64, 80, 128}) {
    for (int group : {1, 3, 4, 8})
      compare({.head_size = head_size, .group = group, .kv_heads = 1, .padding = 5}, {{0, 300, 77}, {150, 65, 33}},
              unsigned(head_size + group));
  }
  compare({.window = 100}, {{700, 20}, {200, 1}}, 1);
  for (const int page_rows : {24, 96}) compare({.page_rows = page_rows}, {{300, 77}, {150, 65}}, unsigned(page_rows));
}

// Pushes the layout over the previous one.
Layout pushed(Staging& staging, Layout l) {
  staging.begin(1 << 16);
  for (Tensor* t : columns_of(l)) {
    if (!*t) continue;
    const Staging::Array a = staging.array(t->shape(), t->dtype());
    std::memcpy(a.host.raw(), t->raw(), std::size_t(t->bytes()));
    *t = a.device;
  }
  staging.push();
  return l;
}

// Consecutive steps, each of one row of every sequence, which read what the step before stored. With `forwards` each
// begins with embed, as a forward does: pages and the pushed layout may then be read before the previous kernel has
// ended.
void expect_steps(int sequences, bool forwards) {
  SCOPED_TRACE(::testing::Message() << sequences << " sequences" << (forwards ? ", forwards" : ""));
  Cache cache(sequences, 150, 16, 2, 128, DType::bf16, 5);
  fill(*make_cpu_backend(2), cache, 150, 5);
  KvLayer kv = cache.layers[0];
  const Tensor frequencies = gpu().upload(random_tensor({64}, 3)), x = rounded(random_tensor({sequences, 12 * 128}, 8));
  const Tensor table = gpu().upload(random_tensor({4, 64}, 2)), token = gpu().upload(integers({1}));
  Staging staging(gpu());
  const auto step = [&](const Layout& given, const Tensor& own, bool fused) {
    const Layout layout = forwards ? pushed(staging, given) : given;
    if (forwards) gpu().embed(Weight::dense(table), token);
    const Tensor q = own.columns(0, 1024), k = own.columns(1024, 256), v = own.columns(1280, 256);
    if (fused) return gpu().rope_attend(q, k, v, kv, layout, frequencies, 0.1f);
    gpu().rope_store(q, k, v, kv, layout, frequencies);
    return gpu().attend(q, kv, layout, 0.1f);
  };
  std::vector<Tensor> results[2];
  for (const bool fused : {true, false}) {
    kv.pool = gpu().upload(copy_of(cache.pool));
    std::vector<Layout> layouts;
    std::vector<Tensor> owns;
    for (int slot = 120; slot < 140; ++slot) {
      std::vector<ScenarioRow> rows;
      for (int s = 0; s < sequences; ++s) rows.push_back(chain_row(s, slot + s % 3));
      layouts.push_back(layout_of(rows, cache.tables, 0));
      if (!forwards) layouts.back() = on_gpu(layouts.back());
      owns.push_back(gpu().upload(copy_of(x)));
    }
    for (std::size_t i = 0; i < layouts.size(); ++i)
      results[fused].push_back(step(layouts[i], owns[i], fused));  // kernels only
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    const Tensor a = fetched(results[1][i]), b = fetched(results[0][i]);
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), std::size_t(a.bytes())), 0) << "step " << i;
  }
}

// As in a forward that is not replayed, which queues many of them one after another.
TEST(RopeAttend, OneBehindAnother) {
  for (int sequences : {1, 20, 70})
    for (const bool forwards : {false, true}) expect_steps(sequences, forwards);
}

}  // namespace
}  // namespace foretoken::test

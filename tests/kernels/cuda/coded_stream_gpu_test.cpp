// The coded stream beside coded tiles: queries in bf16 take the stream, the same numbers in f32 take tiles. Both sum in
// the order of attention.cuh, so results of tiles, once rounded to bf16, have the bits of those of the stream. Codes
// are any, and no scale is a power of two; what no row attends to has NaN as its scale.
#include <cstring>

#include <gtest/gtest.h>

#include "kernels/cuda/attention/chunks.h"
#include "kernels/cuda/attention/routes.h"
#include "kernels/host_backend.h"
#include "tests/kernels/cuda/rope_attend.h"

namespace foretoken::test {
namespace {

constexpr int kKvHeads = 8;
constexpr float kScale = 0.3f;
// A bound of the context with which the sums of chunks would take more memory than a route may use (kMostScratch), so
// that one block computes a whole context: it wraps its ring and folds chunks in registers.
constexpr int kOneBlock = 1 << 28;

std::vector<ScenarioRow> rows_of(const std::vector<int>& begins, const std::vector<int>& rows) {
  std::vector<ScenarioRow> all;
  for (std::size_t s = 0; s < begins.size(); ++s)
    for (int r = 0; r < rows[s]; ++r) all.push_back(chain_row(int(s), begins[s] + r));
  return all;
}

struct Compared {
  int numbers = 0, different = 0, nan = 0;
};
// Numbers in bf16 beside numbers in f32 that are rounded here. A NaN may have any bits.
Compared compared(const Tensor& y, const Tensor& wide) {
  Compared c;
  for (std::int64_t i = 0; i < y.elements(); ++i, ++c.numbers) {
    const bf16 got = y.data<bf16>()[i], want(wide.data<float>()[i]);
    const bool nan = std::isnan(float(want));
    c.nan += nan, c.different += nan ? !std::isnan(float(got)) : got.bits != want.bits;
  }
  return c;
}

class Streamed {
 public:
  // `slots`: of each sequence.
  Streamed(DType dtype, int head_size, int page_rows, const std::vector<int>& slots)
      : cache_(int(slots.size()), *std::max_element(slots.begin(), slots.end()), page_rows, kKvHeads, head_size, dtype),
        dtype_(dtype),
        head_size_(head_size),
        page_rows_(page_rows) {
    std::mt19937 engine{unsigned(head_size + page_rows)};
    for (int s = 0; s < int(slots.size()); ++s)
      for (int slot = 0; slot < slots[std::size_t(s)]; ++slot)
        for (int h = 0; h < kKvHeads; ++h) fill(engine, s, slot, h);
  }
  float& scale(int sequence, int slot, int head, bool values) {
    const KvLayer& kv = cache_.layers[1];
    return *reinterpret_cast<float*>(at({values ? kv.value_scales : kv.key_scales, 4}, sequence, slot, head));
  }

  // Compares the rows with each bound of the context. `nan`: one number of the first query head of row 3 is.
  Compared compare(const std::vector<ScenarioRow>& rows, int group, int window, const std::vector<int>& bounds,
                   bool nan = false) {
    SCOPED_TRACE(::testing::Message() << name_of(dtype_) << ", heads of " << head_size_ << ", group " << group << ", "
                                      << rows.size() << " rows, pages of " << page_rows_ << ", window " << window);
    if (!kv_.pool) kv_ = on_gpu(cache_.layers[1]);
    Layout host = layout_of(rows, cache_.tables, 0);
    if (window > 0) host = windowed(host, window);
    Layout layout = on_gpu(host);
    const Tensor q =
        rounded(random_tensor({std::int64_t(rows.size()), std::int64_t(kKvHeads) * group * head_size_}, 7));
    if (nan) q.row<bf16>(3)[5] = bf16(kNan);
    const Tensor wide = Tensor::host(q.shape(), DType::f32);
    for (std::int64_t i = 0; i < q.elements(); ++i) wide.data<float>()[i] = float(q.data<bf16>()[i]);
    const Tensor narrow_there = gpu().upload(q), wide_there = gpu().upload(wide);
    EXPECT_FALSE(coded_stream_plan(gpu(), wide_there, kv_, layout).taken);
    const Tensor truth = fetched(gpu().attend(wide_there, kv_, layout, kScale));
    Compared last;
    for (const int bound : bounds) {
      layout.deepest = std::max(host.deepest, bound);
      expect_plan(narrow_there, layout, host.deepest, bound);
      last = compared(fetched(gpu().attend(narrow_there, kv_, layout, kScale)), truth);
      EXPECT_EQ(last.different, 0) << "of " << last.numbers << ", bound " << bound;
    }
    return last;
  }

 private:
  std::byte* at(KvPlane plane, int sequence, int slot, int head) {
    const KvLayer& kv = cache_.layers[1];
    return slot_address(kv, plane, cache_.tables.row<std::int32_t>(sequence), slot) + head * page_rows_ * plane.bytes;
  }
  void fill(std::mt19937& engine, int sequence, int slot, int head) {
    const KvLayer& kv = cache_.layers[1];
    const float greatest = dtype_ == DType::i8 ? 127 : 448;
    for (const bool values : {false, true}) {
      std::byte* const codes = at({values ? kv.values : kv.keys, head_size_}, sequence, slot, head);
      for (int i = 0; i < head_size_; i += 4) {
        const std::uint32_t four = std::uint32_t(engine());
        std::memcpy(codes + i, &four, 4);
        for (int j = i; j < i + 4; ++j)  // what store() never writes: -128, NaN
          if (dtype_ == DType::i8 ? codes[j] == std::byte{0x80} : (codes[j] & std::byte{0x7f}) == std::byte{0x7f})
            codes[j] = std::byte{0};
      }
      scale(sequence, slot, head, values) = (0.5f + float(engine() % 1000) / 1000) / greatest;
    }
  }
  void expect_plan(const Tensor& q, const Layout& layout, int deepest, int bound) const {
    const CodedStreamPlan plan = coded_stream_plan(gpu(), q, kv_, layout);
    EXPECT_TRUE(plan.taken) << "does the driver refuse to describe pages of codes?";
    if (bound != kOneBlock) return;
    EXPECT_EQ(plan.splits, 1);
    EXPECT_LT(plan.stages, deepest / kStep) << "the ring does not wrap";
  }

  Cache cache_;
  KvLayer kv_;
  DType dtype_;
  int head_size_, page_rows_;
};

class CodedStream : public ::testing::TestWithParam<std::tuple<DType, int>> {
 protected:
  const DType dtype = std::get<0>(GetParam());
  const int head_size = std::get<1>(GetParam());

  void SetUp() override {
    Cache cache(1, 8, 8, 1, 64, DType::i8);
    const Layout layout = on_gpu(layout_of({chain_row(0, 0)}, cache.tables, 0));
    if (coded_stream_plan(gpu(), gpu().upload(random_tensor({1, 64}, 1)), on_gpu(cache.layers[0]), layout)
            .architecture < 90)
      GTEST_SKIP() << "the coded stream needs capability 9.0";
  }
};

// Rows on both sides of a step and of a chunk; one, two or four sets of 8 vectors; several blocks and a fold, then one
// block.
TEST_P(CodedStream, of_one_sequence_has_the_bits_of_tiles) {
  for (const int page_rows : {8, 16, 24, 64, 96, 128}) {
    Streamed cache(dtype, head_size, page_rows, {1286});
    for (const int group : {1, 4, 8, 16})
      for (const int rows : {1, 2, 4, 8})
        for (const int window : {0, 100})
          if (rows * group <= 32) (void)cache.compare(rows_of({1278}, {rows}), group, window, {0, kOneBlock});
    ASSERT_FALSE(HasFailure());
  }
}

// Sequences of all lengths, of which one has no row and one a row that attends to nothing; so many that each context
// has one block. Numbers that are not finite, of a query, a key and a value, stay in the results of their own.
TEST_P(CodedStream, of_many_ragged_sequences_has_the_bits_of_tiles) {
  for (const int sequences : {30, 70}) {
    const int page_rows = sequences == 70 ? 16 : head_size == 64 ? 24 : 56, longest = sequences == 70 ? 461 : 1297;
    std::vector<int> begins, slots;
    for (int s = 0; s < sequences; ++s) begins.push_back(s * 431 % longest), slots.push_back(begins.back() + 8);
    Streamed cache(dtype, head_size, page_rows, slots);
    ASSERT_GT(begins[5], 33);
    ASSERT_GT(begins[6], 65);
    cache.scale(5, 33, 2, false) = kNan, cache.scale(6, 65, 3, true) = kNan;
    for (const auto& [most, group] : {std::pair{1, 1}, {1, 16}, {4, 4}, {3, 5}, {2, 8}, {3, 8}, {8, 4}})
      for (const int window : {0, 100, 700}) {
        std::vector<int> rows;
        for (int s = 0; s < sequences; ++s) rows.push_back(s == 7 ? 0 : 1 + s % most);
        std::vector<ScenarioRow> all = rows_of(begins, rows);
        for (ScenarioRow& r : all)
          if (r.owner == 8) r.visible = 0;
        const Compared c = cache.compare(all, group, window, {kOneBlock}, true);
        EXPECT_GT(c.nan, 0);
        EXPECT_LT(c.nan, c.numbers / 5);
      }
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(, CodedStream,
                         ::testing::Combine(::testing::Values(DType::i8, DType::e4m3), ::testing::Values(64, 128)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_heads_of_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace foretoken::test

// A query with a NaN gives NaN in every attention kernel, whatever an earlier call left in memory, and changes no bit
// of the other results.
#include <limits>

#include <gtest/gtest.h>

#include "tests/kernels/cuda/gpu.h"

namespace foretoken::test {
namespace {

struct Case {
  std::string route;
  int head_size = 64, group = 4, kv_heads = 2;
  DType cache = DType::bf16;
  bool fused = false;  // rope_attend
  int words = 0;
};

std::vector<ScenarioRow> rows_behind(int slot, int rows, int sequence = 0) {
  std::vector<ScenarioRow> all;
  for (int r = 0; r < rows; ++r) all.push_back(chain_row(sequence, slot + r));
  return all;
}
std::vector<ScenarioRow> one_row_of_each(int sequences) {
  std::vector<ScenarioRow> all;
  for (int s = 0; s < sequences; ++s) all.push_back(chain_row(s, 60 + s));
  return all;
}

class Poisoned {
 public:
  Poisoned(const Case& c, const std::vector<ScenarioRow>& rows)
      : c_(c), cache_(rows.back().owner + 1, 900, 16, c.kv_heads, c.head_size, c.cache, 5), rows_(rows) {
    fill(*make_cpu_backend(2), cache_, 900, 5);
    kv_ = on_gpu(cache_.layers[0]);
    layout_ = on_gpu(layout_of(rows, cache_.tables, c.words));
    frequencies_ = gpu().upload(random_tensor({c.head_size / 2}, 3));
    heads_ = c.group * c.kv_heads;
    qkv_ = rounded(random_tensor({std::int64_t(rows.size()), std::int64_t(heads_ + 2 * c.kv_heads) * c.head_size}, 4));
  }

  // Random bf16 numbers; one number of row `row` and head `head` is NaN (row -1: none).
  Tensor result(int row, int head) {
    Tensor given = copy_of(qkv_);
    if (row >= 0) given.row<bf16>(row)[head * c_.head_size + 5] = bf16(std::numeric_limits<float>::quiet_NaN());
    const std::int64_t nq = std::int64_t(heads_) * c_.head_size, nkv = std::int64_t(c_.kv_heads) * c_.head_size;
    const Tensor x = gpu().upload(given), q = x.columns(0, nq), k = x.columns(nq, nkv), v = x.columns(nq + nkv, nkv);
    const Tensor y =
        c_.fused ? gpu().rope_attend(q, k, v, kv_, layout_, frequencies_, 0.1f) : gpu().attend(q, kv_, layout_, 0.1f);
    const Tensor host = Tensor::host(y.shape(), y.dtype());
    gpu().copy(y, host);
    return host;
  }
  void expect_nan(int row, int head) {
    SCOPED_TRACE(::testing::Message() << c_.route << ", heads of " << c_.head_size << ", row " << row << ", head "
                                      << head);
    const Tensor clean = result(-1, 0), poisoned = result(row, head);
    for (int r = 0; r < int(rows_.size()); ++r)
      for (int h = 0; h < heads_; ++h) {
        const bf16 *const a = clean.row<bf16>(r) + h * c_.head_size, *const b =
                                                                         poisoned.row<bf16>(r) + h * c_.head_size;
        if (r != row || h != head) {
          ASSERT_EQ(std::memcmp(a, b, std::size_t(c_.head_size) * 2), 0) << "row " << r << ", head " << h;
          continue;
        }
        for (int i = 0; i < c_.head_size; ++i) {
          ASSERT_FALSE(std::isnan(float(a[i]))) << i;
          ASSERT_TRUE(std::isnan(float(b[i]))) << i;
        }
      }
  }
  void expect_nan_anywhere() {
    const int last = int(rows_.size()) - 1;
    for (const int row : {0, last / 2, last})
      for (const int head : {0, heads_ - 1}) expect_nan(row, head);
  }

 private:
  Case c_;
  Cache cache_;
  std::vector<ScenarioRow> rows_;
  KvLayer kv_;
  Layout layout_;
  Tensor frequencies_, qkv_;
  int heads_ = 0;
};

TEST(NanQueries, plain) {
  Poisoned({.route = "plain", .head_size = 20, .cache = DType::f32}, rows_behind(300, 3)).expect_nan_anywhere();
}

TEST(NanQueries, tiles_of_one_block) {
  for (const int head_size : {64, 128, 256})
    Poisoned({.route = "tiles", .head_size = head_size}, rows_behind(40, 3)).expect_nan_anywhere();
}

// fold_chunks adds the sums of the blocks' chunks.
TEST(NanQueries, tiles_of_several_blocks) {
  for (const int head_size : {64, 128, 256})
    for (const int rows : {1, 8})
      Poisoned({.route = "tiles, folded", .head_size = head_size}, rows_behind(800, rows)).expect_nan_anywhere();
}

// With 36 vectors tiles, with 4 or 32 the stream.
TEST(NanQueries, codes) {
  for (const DType cache : {DType::i8, DType::e4m3})
    for (const int head_size : {64, 128, 256})
      for (const int rows : {1, 8, 9}) {
        Poisoned({.route = "codes of one chunk", .head_size = head_size, .cache = cache}, rows_behind(40, rows))
            .expect_nan_anywhere();
        Poisoned({.route = "codes, folded", .head_size = head_size, .cache = cache}, rows_behind(800, rows))
            .expect_nan_anywhere();
      }
}

TEST(NanQueries, codes_of_many_sequences) {
  for (const DType cache : {DType::i8, DType::e4m3})
    for (const int head_size : {64, 128})
      Poisoned({.route = "coded stream", .head_size = head_size, .kv_heads = 8, .cache = cache}, one_row_of_each(70))
          .expect_nan_anywhere();
}

TEST(NanQueries, trees) {
  for (const int prefix : {20, 700}) {
    std::vector<ScenarioRow> tree;
    for (int n = 0; n < 5; ++n)
      tree.push_back({0, prefix + n, prefix + std::min(n, 1), prefix, {n == 0 ? 1u : 1u | 1u << n}});
    Poisoned({.route = "a tree", .words = 1}, tree).expect_nan_anywhere();
    Poisoned({.route = "a tree", .head_size = 128, .words = 1}, tree).expect_nan_anywhere();
  }
}

TEST(NanQueries, prompts) {
  for (const int head_size : {64, 128})
    for (const bool fused : {false, true})
      Poisoned({.route = "a prompt", .head_size = head_size, .fused = fused}, rows_behind(150, 200))
          .expect_nan_anywhere();
}

TEST(NanQueries, decoding) {
  for (const int head_size : {64, 128})
    for (const int rows : {1, 8})
      Poisoned({.route = "decode", .head_size = head_size, .fused = true}, rows_behind(700, rows))
          .expect_nan_anywhere();
}

TEST(NanQueries, decoding_of_many_sequences) {
  for (const int head_size : {64, 128})
    Poisoned({.route = "stream", .head_size = head_size, .kv_heads = 8, .fused = true}, one_row_of_each(70))
        .expect_nan_anywhere();
}

}  // namespace
}  // namespace foretoken::test

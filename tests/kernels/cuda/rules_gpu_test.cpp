// Caps of scores, sinks, and rotations of a part of a head on the GPU against the reference, on every route that takes
// them: sizes of heads, caches, windows, trees, contexts that blocks share; and a row has the same bits alone and among
// others. Biases of experts.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/trees.h"

namespace foretoken::test {
namespace {

constexpr double kRuledBf16 = 8e-3, kRuledF32 = 1e-5;  // as of attend_gpu_test.cpp, and a tanh

struct RuledCase {
  int head_size = 64, group = 4;
  DType cache = DType::bf16, queries = DType::f32;
  float cap = 0;
  bool sinks = false;
  int window = 0;
};

std::vector<ScenarioRow> ruled_rows() {
  std::vector<ScenarioRow> rows;
  for (int slot = 0; slot < 45; ++slot) rows.push_back(chain_row(0, 236 + slot));
  for (int slot : {3, 869, 300}) rows.push_back(chain_row(1, slot));
  for (int slot = 505; slot < 517; ++slot) rows.push_back(chain_row(3, slot));
  return rows;
}

AttentionRules ruled(const RuledCase& c, bool on_device) {
  std::vector<float> sinks(std::size_t(2 * c.group));
  for (std::size_t h = 0; h < sinks.size(); ++h) sinks[h] = float(h) - 3;
  const Tensor host = listed(sinks, DType::f32);
  return {2 / std::sqrt(float(c.head_size)), c.cap, c.sinks ? on_device ? gpu().upload(host) : host : Tensor()};
}

void compare_ruled(const RuledCase& c, const std::vector<ScenarioRow>& rows, int words) {
  SCOPED_TRACE(::testing::Message() << "head " << c.head_size << ", group " << c.group << ", cache " << name_of(c.cache)
                                    << ", cap " << c.cap << ", sinks " << c.sinks << ", window " << c.window);
  const std::unique_ptr<Backend> reference = make_reference_backend();
  Cache cache(4, 900, 16, 2, c.head_size, c.cache, 5);
  fill(*reference, cache, 880, 5);
  const auto layout_for = [&](const std::vector<ScenarioRow>& some) {
    const Layout layout = layout_of(some, cache.tables, words);
    return c.window > 0 ? windowed(layout, c.window) : layout;
  };
  const Layout layout = layout_for(rows);
  const Tensor q = random_tensor({std::int64_t(rows.size()), std::int64_t(2) * c.group * c.head_size}, 9),
               given = c.queries == DType::bf16 ? rounded(q) : q,
               seen = c.cache != DType::f32 || c.queries == DType::bf16 ? through_bf16(q) : q;
  const KvLayer kv = on_gpu(cache.layers[1]);
  const AttentionRules here = ruled(c, false), there = ruled(c, true);
  const Tensor y = fetched_wide(gpu().attend(gpu().upload(given), kv, on_gpu(layout), there)),
               right = reference->attend(seen, cache.layers[1], layout, here);
  EXPECT_LT(distance(y, right), c.cache != DType::f32 || c.queries == DType::bf16 ? kRuledBf16 : kRuledF32);
  EXPECT_GT(distance(right, reference->attend(seen, cache.layers[1], layout, here.scale)), 2e-2) << "the rules count";
  for (std::size_t r = 0; r < rows.size(); r += 7) {
    Layout one = layout_for({rows[r]});
    one.deepest += int(r % 3) * 700;  // a looser bound splits the context differently
    const Tensor alone =
        fetched_wide(gpu().attend(gpu().upload(given.rows(std::int64_t(r), 1)), kv, on_gpu(one), there));
    ASSERT_TRUE(same_row(alone, 0, y, std::int64_t(r))) << "row " << r;
  }
  EXPECT_LT(distance(fetched_wide(gpu().attention_mass(gpu().upload(seen), kv, on_gpu(layout), there)),
                     reference->attention_mass(seen, cache.layers[1], layout, here)),
            1e-4);
}

TEST(AttendRules, of_every_size_of_heads_and_cache) {
  for (const DType cache : {DType::bf16, DType::f32, DType::i8, DType::e4m3})
    for (const int size : {32, 64, 96, 128, 256}) {
      compare_ruled({.head_size = size, .cache = cache, .cap = 2}, ruled_rows(), 0);
      compare_ruled({.head_size = size, .cache = cache, .queries = DType::bf16, .sinks = true}, ruled_rows(), 0);
    }
  compare_ruled({.head_size = 20, .cap = 2, .sinks = true}, ruled_rows(), 0);
}

TEST(AttendRules, of_groups_and_windows) {
  for (const int group : {1, 3, 8})
    for (const int window : {0, 9, 300}) {
      compare_ruled({.group = group, .cap = 2, .window = window}, ruled_rows(), 0);
      compare_ruled({.group = group, .queries = DType::bf16, .sinks = true, .window = window}, ruled_rows(), 0);
    }
}

TEST(AttendRules, of_trees) {
  std::vector<ScenarioRow> rows;
  for (int node = 0; node < 12; ++node)
    rows.push_back(
        {0, 300 + node, 300 + (node > 2 ? 2 : 0), 300, {(std::uint64_t(1) << node) | (node > 2 ? 0b101u : 0u)}});
  compare_ruled({.cap = 2}, rows, 1);
  compare_ruled({.head_size = 128, .queries = DType::bf16, .sinks = true}, rows, 1);
  compare_ruled({.head_size = 256, .cap = 2, .window = 100}, rows, 1);
}

// Few rows of a deep context, where sums of blocks go through memory; and rotation and storing beside it.
TEST(AttendRules, rope_attend_with_sinks_is_rope_store_and_attend) {
  for (const int deep : {100, 3000, 9000})
    for (const int rows : {1, 4}) {
      Cache cache(1, deep + 8, 16, 2, 64, DType::bf16, 3);
      fill(*make_cpu_backend(2), cache, deep, 3);
      std::vector<ScenarioRow> some;
      for (int r = 0; r < rows; ++r) some.push_back(chain_row(0, deep + r));
      const Layout layout = on_gpu(layout_of(some, cache.tables, 0));
      const Tensor frequencies = gpu().upload(random_tensor({32}, 4));
      const AttentionRules rules = ruled({.sinks = true}, true);
      const auto run = [&](bool fused) {
        KvLayer kv = cache.layers[1];
        kv.pool = gpu().upload(copy_of(cache.pool));
        const Tensor x = gpu().upload(rounded(random_tensor({rows, 12 * 64}, 6))), q = x.columns(0, 512),
                     k = x.columns(512, 128), v = x.columns(640, 128);
        if (fused) return fetched_wide(gpu().rope_attend(q, k, v, kv, layout, frequencies, rules));
        gpu().rope_store(q, k, v, kv, layout, frequencies);
        return fetched_wide(gpu().attend(q, kv, layout, rules));
      };
      EXPECT_TRUE(same_bits(run(true), run(false))) << deep << ", " << rows;
    }
}

TEST(RopeOfAPart, is_the_references) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  constexpr int kHead = 48, kRotated = 36;
  const Tensor f = random_tensor({kRotated / 2}, 2);
  for (const DType cache_type : {DType::bf16, DType::f32, DType::i8}) {
    Cache cache(1, 400, 16, 1, kHead, cache_type);
    const Layout layout = layout_of({chain_row(0, 0), chain_row(0, 7), chain_row(0, 300)}, cache.tables, 0);
    const Tensor x = random_tensor({3, 4 * kHead}, 1), slow = copy_of(x), fast = gpu().upload(copy_of(x));
    const auto parts = [&](const Tensor& t) {
      return std::tuple(t.columns(0, 2 * kHead), t.columns(2 * kHead, kHead), t.columns(3 * kHead, kHead));
    };
    const auto [q, k, v] = parts(slow);
    const auto [there_q, there_k, there_v] = parts(fast);
    KvLayer kv = cache.layers[0];
    kv.pool = gpu().upload(copy_of(cache.pool));
    gpu().rope_store(there_q, there_k, there_v, kv, on_gpu(layout), RotaryRules(gpu().upload(f), 1.25f));
    reference->rope_store(q, k, v, cache.layers[0], layout, RotaryRules(f, 1.25f));
    EXPECT_LT(distance(fetched_wide(fast), slow), 1e-6);
    const Tensor again = random_tensor({3, 2 * kHead}, 4);
    KvLayer own = cache.layers[0];
    EXPECT_LT(distance(fetched_wide(gpu().attend(gpu().upload(again), kv, on_gpu(layout), 0.2f)),
                       reference->attend(cache_type == DType::f32 ? again : through_bf16(again), own, layout, 0.2f)),
              cache_type == DType::f32 ? kRuledF32 : 2e-2);
    const Tensor alone = gpu().upload(copy_of(x));
    gpu().rope(alone.columns(0, 2 * kHead), alone.columns(2 * kHead, kHead), on_gpu(layout),
               RotaryRules(gpu().upload(f), 1.25f), kHead);
    EXPECT_TRUE(same_bits(fetched_wide(alone), fetched_wide(fast)));
  }
}

}  // namespace
}  // namespace foretoken::test

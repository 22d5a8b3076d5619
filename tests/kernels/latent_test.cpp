// Layers whose values are parts of their keys (KvLayer::latent): what is stored, moved and attended to, by every
// instruction set and the reference.
#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/trees.h"

namespace foretoken::test {
namespace {

constexpr DType kLatentCaches[] = {DType::f32, DType::bf16, DType::i8, DType::e4m3};

// Of DeepSeek, and of less than a vector of either.
struct LatentSizes {
  int heads, key, value;
};
constexpr LatentSizes kLatentSizes[] = {{5, 576, 512}, {6, 100, 68}, {3, 40, 24}, {2, 6, 2}, {4, 20, 20}};

class Latents : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> make(int threads) {
    if (GetParam() == "reference") return make_reference_backend();
    return make_cpu_backend(threads, GetParam());
  }
  std::unique_ptr<Backend> backend = make(1), threaded = make(3);
};

// Layers whose values are the last `value` numbers of keys.
Cache latent_cache(Cache cache, int value) {
  for (KvLayer& kv : cache.layers) {
    kv.latent = value;
    kv.values = kv.keys + (kv.head_size - value) * size_of(kv.dtype), kv.value_scales = kv.key_scales;
  }
  return cache;
}

Layout some_rows(const Cache& cache) {
  std::vector<ScenarioRow> rows;
  for (const int slot : {0, 1, 17, 255, 256, 257, 289}) rows.push_back(chain_row(0, slot));
  for (int slot = 253; slot < 259; ++slot) rows.push_back(chain_row(1, slot));
  return layout_of(rows, cache.tables, 0);
}

Tensor latent_queries(const Layout& layout, const LatentSizes& s) {
  return random_tensor({layout.rows, std::int64_t(s.heads) * s.key}, 8, 0.2f);
}

// Numbers that stand apart give the bits of those within keys, and all is what the reference has.
TEST_P(Latents, AreAttendedToAsValuesThatStandApart) {
  for (const LatentSizes& s : kLatentSizes)
    for (const DType dtype : kLatentCaches) {
      SCOPED_TRACE(::testing::Message() << s.key << ", " << s.value << " " << name_of(dtype));
      Cache apart(2, 290, 16, 1, s.key, dtype), within = latent_cache(Cache(2, 290, 16, 1, s.key, dtype), s.value);
      const Layout layout = some_rows(apart);
      std::vector<ScenarioRow> all;
      for (int owner = 0; owner < 2; ++owner)
        for (int slot = 0; slot < 290; ++slot) all.push_back(chain_row(owner, slot));
      const Layout stored = layout_of(all, apart.tables, 0);
      const Tensor k = random_tensor({stored.rows, s.key}, 3), v = Tensor::host(k.shape(), DType::f32);
      std::ranges::fill(v.values<float>(), 0.0f);
      copy_on_host(k.columns(s.key - s.value, s.value), v.columns(0, s.value));
      backend->store(k, v, apart.layers[0], stored), backend->store(k, {}, within.layers[0], stored);
      const Tensor q = latent_queries(layout, s), y = threaded->attend(q, within.layers[0], layout, 0.3f);
      ASSERT_EQ(y.shape(), Shape({layout.rows, std::int64_t(s.heads) * s.value}));
      EXPECT_LT(distance(y, make_reference_backend()->attend(q, within.layers[0], layout, 0.3f)), 3e-6);
      if (has_scales(dtype)) continue;  // values that stand apart have scales of their own
      const Tensor want = backend->attend(q, apart.layers[0], layout, 0.3f);
      for (int h = 0; h < s.heads; ++h)
        EXPECT_TRUE(
            same_bits(y.columns(std::int64_t(h) * s.value, s.value), want.columns(std::int64_t(h) * s.key, s.value)));
    }
}

// A row's bits are those of the row alone; and those of a node of a tree those of its path as a chain, whose rows were
// moved there.
TEST_P(Latents, AreAttendedToByEachRowAlone) {
  for (const LatentSizes& s : kLatentSizes)
    for (const DType dtype : kLatentCaches) {
      Cache cache = latent_cache(Cache(2, 290, 16, 1, s.key, dtype), s.value);
      fill(*backend, cache, 290, 7);
      const Layout layout = some_rows(cache);
      const Tensor q = latent_queries(layout, s), all = threaded->attend(q, cache.layers[1], layout, 0.3f);
      for (int r = 0; r < layout.rows; ++r) {
        const int owner = layout.owner.data<std::int32_t>()[r], slot = layout.slots.data<std::int32_t>()[r];
        const Layout one = layout_of({chain_row(owner, slot)}, cache.tables, 0);
        ASSERT_TRUE(same_row(backend->attend(q.rows(r, 1), cache.layers[1], one, 0.3f), 0, all, r)) << r;
      }
      std::mt19937 engine(3);
      const Tree tree = random_tree(0, 250, 20, engine);
      Cache grown = latent_cache(Cache(1, tree.slots(), 16, 1, s.key, dtype), s.value);
      fill(*backend, grown, tree.slots(), 9);
      const Tensor queries = random_tensor({tree.nodes(), std::int64_t(s.heads) * s.key}, 4, 0.2f);
      const Tensor y = threaded->attend(queries, grown.layers[0], tree.layout(grown.tables), 0.3f);
      for (int n = 0; n < tree.nodes(); n += 5) {
        const Cache moved = tree.as_chain(n, grown);
        const Layout chain = tree.chain(n, moved.tables);
        ASSERT_TRUE(same_row(backend->attend(queries.rows(n, 1), moved.layers[0], chain, 0.3f), 0, y, n)) << n;
      }
    }
}

TEST_P(Latents, AreWeighedAsTheReferenceDoes) {
  for (const DType dtype : kLatentCaches) {
    Cache cache = latent_cache(Cache(2, 290, 16, 1, 40, dtype), 24);
    fill(*backend, cache, 290, 7);
    const Layout layout = some_rows(cache);
    const Tensor q = latent_queries(layout, {3, 40, 24});
    EXPECT_LT(distance(backend->attention_mass(q, cache.layers[0], layout, 0.3f),
                       make_reference_backend()->attention_mass(q, cache.layers[0], layout, 0.3f)),
              1e-5);
  }
}

// Pairs of neighbours are rotated as pairs of halves are, in another order.
TEST_P(Latents, AreRotatedByPairsOfNeighbours) {
  constexpr int kSize = 12, kPairs = 4;
  RotaryRules halves(random_tensor({kPairs}, 2)), neighbours = halves;
  neighbours.neighbours = true;
  std::vector<ScenarioRow> rows;
  for (const int position : {0, 3, 200}) rows.push_back(chain_row(0, position));
  const Layout layout = layout_of(rows, integers({0}).reshaped({1, 1}), 0);
  const Tensor x = random_tensor({3, 3 * kSize}, 1), a = copy_of(x), b = copy_of(x);
  const auto place = [&](int i) {  // of number i of a head, among halves
    const int in_head = i % kSize;
    return in_head < 2 * kPairs ? i - in_head + in_head / 2 + in_head % 2 * kPairs : i;
  };
  for (int r = 0; r < 3; ++r)
    for (int i = 0; i < 3 * kSize; ++i) b.row<float>(r)[place(i)] = x.row<float>(r)[i];
  backend->rope(a.columns(0, 2 * kSize), a.columns(2 * kSize, kSize), layout, neighbours, kSize);
  backend->rope(b.columns(0, 2 * kSize), b.columns(2 * kSize, kSize), layout, halves, kSize);
  for (int r = 0; r < 3; ++r)
    for (int i = 0; i < 3 * kSize; ++i) EXPECT_NEAR(a.row<float>(r)[i], b.row<float>(r)[place(i)], 1e-6);
  EXPECT_GT(distance(a, x), 0.1);
}

std::vector<std::string> latent_backends() {
  std::vector<std::string> all = cpu_instructions();
  all.emplace_back("reference");
  return all;
}

INSTANTIATE_TEST_SUITE_P(Backends, Latents, testing::ValuesIn(latent_backends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace foretoken::test

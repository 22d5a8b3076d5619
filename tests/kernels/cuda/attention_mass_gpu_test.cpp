// attention_mass on the GPU against the reference: types of caches, groups of heads, windows, trees, padded tables; and
// a table's mass has the same bits whatever other tables are in the batch.
#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {
namespace {

// A mass is a sum of weights of at most 1 over rows and heads, in f32; scores are sums in f32 too.
constexpr double kMassTolerance = 2e-5;

Tensor mass_on_gpu(const Tensor& q, const KvLayer& kv, const Layout& layout) {
  return fetched_wide(gpu().attention_mass(gpu().upload(q), kv, on_gpu(layout), 0.2f));
}

TEST(AttentionMass, IsTheReferences) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::e4m3})
    for (const int page_rows : {7, 16}) {
      Cache cache(3, 300, page_rows, 2, 64, dtype);
      fill(*reference, cache, 300, 7);
      std::vector<ScenarioRow> rows{chain_row(0, 0), chain_row(0, 150), chain_row(0, 299)};
      rows.push_back({2, 240, 230, 230, {0b10000000001}});
      const Layout whole = layout_of(rows, cache.tables, 1);
      const Tensor q = random_tensor({whole.rows, 6 * 64}, 8);
      const KvLayer kv = on_gpu(cache.layers[1]);
      for (const Layout& layout : {whole, windowed(whole, 9), windowed(whole, 100)}) {
        const Tensor seen = dtype == DType::f32 ? q : through_bf16(q),
                     right = reference->attention_mass(seen, cache.layers[1], layout, 0.2f);
        EXPECT_LT(distance(mass_on_gpu(q, kv, layout), right), kMassTolerance)
            << name_of(dtype) << ", pages of " << page_rows;
      }
    }
}

TEST(AttentionMass, OfATableDependsOnItsOwnRows) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  Cache cache(2, 300, 16, 2, 64, DType::bf16);
  fill(*reference, cache, 300, 7);
  const KvLayer kv = on_gpu(cache.layers[0]);
  std::vector<ScenarioRow> own{chain_row(0, 150), chain_row(0, 151)}, all = own;
  for (int slot = 40; slot < 80; ++slot) all.push_back(chain_row(1, slot));
  const Tensor q = random_tensor({std::int64_t(all.size()), 8 * 64}, 3);
  const Tensor alone = mass_on_gpu(q.rows(0, 2), kv, layout_of(own, cache.tables.rows(0, 1), 0)),
               among = mass_on_gpu(q, kv, layout_of(all, cache.tables, 0));
  EXPECT_TRUE(same_row(alone, 0, among, 0));
}

}  // namespace
}  // namespace foretoken::test

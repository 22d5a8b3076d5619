// Attention of blocks whose rows attend to one another, on the reference and on the CPU with each of its instruction
// sets, against plain loops.
#include "tests/kernels/mutual.h"

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"

namespace foretoken::test {
namespace {

class Mutual : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend =
      GetParam() == "reference" ? make_reference_backend() : make_cpu_backend(2, GetParam());

  Tensor attended(const MutualScenario& s) const {
    const Tensor x = copy_of(s.qkv);
    const std::int64_t nq = s.q_width(), nkv = s.kv_width();
    return backend->rope_attend(x.columns(0, nq), x.columns(nq, nkv), x.columns(nq + nkv, nkv), s.cache.layers[1],
                                s.layout, s.frequencies, 0.125f);
  }
};

TEST_P(Mutual, RowsAttendToLaterOnes) {
  for (const DType cache : {DType::f32, DType::bf16})
    for (const MutualCase& c : mutual_cases(cache)) {
      const MutualScenario s(c, 7);
      const Tensor expected = s.expected(0.125f);
      // f32 sums and rotations; a key on the edge of two bf16 numbers may be rounded to the other.
      EXPECT_LT(distance(attended(s), expected), cache == DType::f32 ? 1e-5 : 1e-3) << name_of(cache);
    }
}

// The plain loops see the difference: the same rows that attend to those before them alone.
TEST_P(Mutual, CausalRowsGiveSomethingElse) {
  MutualCase c = mutual_cases(DType::f32)[1];
  const MutualScenario both_ways(c, 7);
  c.blocks = {false};
  const Tensor causal = attended(MutualScenario(c, 7)), expected = both_ways.expected(0.125f);
  EXPECT_GT(distance(causal.rows(0, 1), expected.rows(0, 1)), 0.01);
  EXPECT_LT(distance(causal.rows(15, 1), expected.rows(15, 1)), 1e-5) << "the last row sees all either way";
}

std::vector<std::string> backends() {
  std::vector<std::string> all = cpu_instructions();
  all.insert(all.begin(), "reference");
  return all;
}

INSTANTIATE_TEST_SUITE_P(Backends, Mutual, ::testing::ValuesIn(backends()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace foretoken::test

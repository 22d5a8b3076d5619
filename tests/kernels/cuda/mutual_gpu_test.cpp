// Attention of blocks whose rows attend to one another, on the GPU against plain loops: a row attends to keys that
// later rows of the same forward store.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/mutual.h"

namespace foretoken::test {
namespace {

TEST(MutualGpu, RowsAttendToLaterOnes) {
  for (const DType cache : {DType::f32, DType::bf16})
    for (const MutualCase& c : mutual_cases(cache)) {
      MutualScenario s(c, 7);
      s.qkv = through_bf16(s.qkv);
      const Tensor expected = s.expected(0.125f);
      const Tensor x = gpu().upload(rounded(s.qkv));
      const std::int64_t nq = s.q_width(), nkv = s.kv_width();
      const Tensor y =
          gpu().rope_attend(x.columns(0, nq), x.columns(nq, nkv), x.columns(nq + nkv, nkv), on_gpu(s.cache.layers[1]),
                            on_gpu(s.layout), gpu().upload(s.frequencies), 0.125f);
      const Tensor found = Tensor::host(y.shape(), y.dtype()), wide = Tensor::host(y.shape(), DType::f32);
      gpu().copy(y, found);
      for (std::int64_t i = 0; i < y.elements(); ++i) wide.data<float>()[i] = float(found.data<bf16>()[i]);
      // Queries, weights and results are bf16, of 8 bits.
      EXPECT_LT(distance(wide, expected), 0.02) << name_of(cache) << ", " << c.rows.front() << " rows";
    }
}

}  // namespace
}  // namespace foretoken::test

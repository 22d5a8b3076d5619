// A head that is tied to the embedding is stored on the GPU once.
#include <gtest/gtest.h>

#include "framework/model/random_weights.h"
#include "framework/model/transformer.h"
#include "tests/support/gpu.h"

namespace foretoken::test {
namespace {

ModelConfig wide_vocabulary(bool tied) {
  ModelConfig c;
  c.architecture = "LlamaForCausalLM", c.vocab = 128256, c.width = 512, c.layers = 1, c.heads = 8, c.kv_heads = 2,
  c.head_size = 64, c.ffn = 512, c.positions = 512, c.tied_head = tied, c.eos = {0};
  return c;
}

// Bytes of GPU memory that a model takes.
std::int64_t taken(Backend& backend, bool tied) {
  const std::int64_t before = backend.free_memory();
  const Transformer model(backend, wide_vocabulary(tied), RandomWeights(1), "wide", 0, {.dtype = "bf16"});
  backend.synchronize();
  return before - backend.free_memory();
}

TEST(TiedHead, is_stored_on_the_gpu_once) {
  const auto backend = make_gpu({});
  const std::int64_t table = std::int64_t(128256) * 512 * 2, tied = taken(*backend, true),
                     apart = taken(*backend, false);
  EXPECT_GT(tied, table);
  EXPECT_LT(tied, table + table / 4);
  EXPECT_GT(apart, 2 * table);
}

}  // namespace
}  // namespace foretoken::test

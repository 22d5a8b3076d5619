// On the GPU: only the sequence with a NaN fails, and drafters' caches keep the drawn tokens.
#include "experiments/conformance/laws.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/laws/poisoned_token.h"
#include "tests/laws/private_trees.h"

namespace foretoken::test {

using namespace conformance;

namespace {

TEST(FailureOnTheDevice, a_nan_in_one_prompt_harms_nobody_else) {
  const auto backend = make_cuda_backend({.invariant = true});
  expect_poison_harms_nobody_else(*backend);
}

TEST(FailureOnTheDevice, a_drafter_that_keeps_its_trees_to_itself_feeds_what_it_feeds_on_the_reference) {
  ReferenceBackend reference;
  const auto backend = make_cuda_backend({.invariant = true});
  for (const char* drafter : {"draft_model", "private"})
    for (const float temperature : {0.0f, 1.0f}) {
      const Finding f = same_on_devices(
          {{with_private_trees(),
            {{{"name", drafter}, {"model", "table:other"}}, {{"name", "fixed"}, {"length", 4}}, {{"name", "coupled"}}}},
           {.sampling = {.temperature = temperature}},
           reference,
           table_models({.vocab = 5, .order = 1, .seed = 95}),
           random_requests(8, 5, 10, 24, 12)},
          *backend);
      EXPECT_TRUE(f.holds) << f.what;
    }
}

}  // namespace
}  // namespace foretoken::test

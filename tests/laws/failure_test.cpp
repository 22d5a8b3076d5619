// Only the sequence with a NaN fails, on the devices of the host.
#include "tests/laws/poisoned_token.h"

namespace foretoken::test {
namespace {

TEST(Failure, ANanInOnePromptHarmsNobodyElse) {
  const auto backend = make_cpu_backend(1);
  expect_poison_harms_nobody_else(*backend);
}

}  // namespace
}  // namespace foretoken::test

// Every verifier's decisions on the GPU are the reference's on the same draws: 100,000 ragged random trees for each.
#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/laws.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/gpu.h"

namespace foretoken::test {

using namespace conformance;

namespace {

struct Size {
  int vocab, batches, trees, most_nodes;
};
constexpr Size kSizes[] = {{3, 25, 1000, 24},   {5, 25, 1000, 24},   {61, 20, 1000, 24}, {255, 10, 1000, 24},
                           {257, 10, 1000, 24}, {513, 8, 500, 64},   {1009, 8, 500, 64}, {4096, 10, 200, 64},
                           {32000, 10, 24, 24}, {128256, 6, 10, 16}, {262144, 4, 8, 12}};

class VerdictsOnTheGpu : public testing::TestWithParam<std::string> {};

TEST_P(VerdictsOnTheGpu, are_those_of_the_reference) {
  const auto gpu = make_gpu({.invariant = true});
  const Registries registries = all_registries();
  for (const nlohmann::json& verifier : configurations(registries.verifiers, GetParam())) {
    const Subject subject{registries, {{{"name", "none"}}, {{"name", "fixed"}}, verifier}};
    long trials = 0, accepted = 0;
    for (const Size& size : kSizes)
      for (int batch = 0; batch < size.batches; ++batch) {
        ReferenceBackend reference;
        const Finding f = same_tree_verdicts(
            subject, {size.vocab, size.trees, size.most_nodes, std::uint64_t(batch + 1)}, reference, *gpu);
        ASSERT_TRUE(f.holds) << f.what.substr(0, 1000);
        trials += f.cases, accepted += f.accepted;
      }
    EXPECT_GE(trials, 100000);
    EXPECT_GT(accepted, trials / 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Verifiers, VerdictsOnTheGpu, testing::ValuesIn(all_registries().verifiers.names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace foretoken::test

// A device backend with a verifier whose rule is compiled for the host only.
#include <gtest/gtest.h>

#include "framework/components/verifier.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::testing {
namespace {

// A reference backend that reports to be a device, for which no rule is compiled.
class Foreign final : public ReferenceBackend {
 public:
  Device device() const override { return {Device::Kind::cuda, 0}; }
};

struct Nothing {
  template <class Lane> Verdict operator()(Lane& lane, const Trial& trial) const {
    Verdict v;
    v.finish(lane.draw(trial.p(0), {Role::bonus, 0, 0}));
    return v;
  }
};

// The serial number of a new backend. The difference of two calls counts the objects with a Serial that were made since
// the first call; here only backends have one.
std::uint64_t made() { return make_reference_backend()->serial(); }

TEST(HostTrials, a_host_only_verifier_makes_one_backend_and_reuses_it) {
  Foreign device;
  RuleVerifier<Nothing> verifier(Soundness{});
  const std::vector<float> logits{0, 1, 2};
  const Distributions p = device.distributions(Tensor::host_copy<float>(logits, DType::f32).reshaped({1, 3}),
                                               std::vector{Warp{.temperature = 0}});
  const std::vector<DraftTree> trees{DraftTree::rooted(device, 1, 0)};
  const std::vector<Draws> draws(1);
  const std::vector<std::uint32_t> positions{1};
  Staging staging(device);
  const Tensor verdicts = device.allocate({1, std::int64_t(sizeof(Verdict))}, DType::u8);
  constexpr int kRounds = 5;
  const std::uint64_t before = made();
  for (int i = 0; i < kRounds; ++i) {
    const Trials trials(device, trees, p, draws, positions, staging);
    verifier.verify(device, trials, verdicts);
    EXPECT_EQ(reinterpret_cast<const Verdict*>(verdicts.raw())->next, 2);
  }
  EXPECT_EQ(made() - before, 2u) << "one besides that of made()";
}

}  // namespace
}  // namespace foretoken::testing

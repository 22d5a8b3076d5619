// constraints: the constrained distribution is exact at every node, on chains and trees of every kind, for every
// verifier that promises it, also where a device drew the tokens and the host reads them first; planted bugs are
// detected.
#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/laws.h"
#include "tests/laws/subjects.h"
#include "tests/support/in_turn.h"

namespace foretoken::test {

using namespace conformance;

namespace {

const nlohmann::json kNoisyModel{{"name", "draft_model"}, {"model", "table:other"}};
const Subject kSampledChain{all_registries(),
                            {kNoisyModel, {{"name", "fixed"}, {"length", 2}}, {{"name", "speculative_sampling"}}}};

Sampling constrained() {
  return std::ranges::find(sampling_options(), "response_format", &SamplingOption::key)->sampling;
}

ExactCase with(std::function<std::unique_ptr<HostBackend>()> backend) {
  return {.target = {.vocab = 4, .seed = 23, .impossible = 0.1},
          .prompts = {{2}},
          .tokens = 3,
          .scenario = {.sampling = constrained()},
          .most_ways = 20000,
          .backend = std::move(backend)};
}

// The tokens of trees are in other memory than the host's, as on a device.
class TokensApart : public ReferenceBackend {
 public:
  Device device() const override { return {Device::Kind::cpu, 1}; }
  void synchronize() override { ++synchronized; }
  int synchronized = 0;
};

TEST(Constraints, AreExactOnChainsAndTreesOfEveryKind) {
  const Registries registries = with_scripted(all_registries());
  std::vector<nlohmann::json> drafters{kNoisyModel, {{"name", "draft_tree"}, {"model", "table:other"}}};
  for (const char* kinds : {"mixed", "independent", "certain"}) drafters.push_back(random_tree(2, kinds));
  std::vector<Subject> exact_ones;
  for (const Subject& s : subjects(registries, 3, drafters))
    if (soundness_of(s.registries, s.configs.verifier).promise.rfind("exact", 0) == 0) exact_ones.push_back(s);
  ASSERT_GT(exact_ones.size(), 8u);
  long accepted = 0, rejected = 0;
  for (const Subject& s : in_turn(exact_ones, 3))
    for (const bool apart : {false, true}) {
      const Finding f = exact(s, with([&]() -> std::unique_ptr<HostBackend> {
                                if (apart) return std::make_unique<TokensApart>();
                                return std::make_unique<ReferenceBackend>();
                              }));
      EXPECT_TRUE(f.holds) << (apart ? "tokens apart: " : "") << f.what << ": " << f.why;
      accepted += f.accepted, rejected += f.rejected;
    }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

TEST(Constraints, TokensOfADeviceAreWaitedForOnceAStep) {
  const Models models = table_models({.vocab = 4, .seed = 23});
  for (const bool asked : {false, true}) {
    TokensApart backend;
    long steps = 0;
    const auto count = [&](Engine&, const StepReport&, std::span<const Sequence* const>) { ++steps; };
    const Sampling sampling = asked ? constrained() : Sampling{.temperature = 1};
    const RunOutcome outcome =
        run_scenario({kSampledChain, {.sampling = sampling}, backend, models, random_requests(4, 4, 3, 20, 1)}, count);
    ASSERT_EQ(outcome.outputs.size(), 4u);
    // Of a step without a draft there is nothing to read.
    EXPECT_LE(backend.synchronized, asked ? 2 * steps : steps);
    EXPECT_GT(backend.synchronized, asked ? steps + steps / 2 : 0);
    for (const Tokens& output : outcome.outputs) {
      Constraint::State state = constrained().constraint->start();
      for (const Token t : output) state = constrained().constraint->after(state, t);
      EXPECT_TRUE(!asked || state != Constraint::kBroken);
    }
  }
}

// ---- planted bugs ----

class IgnoresMasks : public ReferenceBackend {
 public:
  void mask(Tensor, std::span<const std::uint32_t* const>) override {}
};
// Every node of a draft has the mask of its root.
class MasksOfRoots : public ReferenceBackend {
 public:
  void mask(Tensor logits, std::span<const std::uint32_t* const> allowed) override {
    const std::vector<const std::uint32_t*> first(allowed.size(), allowed.front());
    ReferenceBackend::mask(logits, first);
  }
};
// The last tokens of a vocabulary are left as they are.
class MasksTooShort : public ReferenceBackend {
 public:
  void mask(Tensor logits, std::span<const std::uint32_t* const> allowed) override {
    for (std::int64_t r = 0; r < logits.dim(0); ++r) {
      float* row = logits.row<float>(r);
      const float last = row[logits.dim(1) - 3];
      ReferenceBackend::mask(logits.rows(r, 1), allowed.subspan(std::size_t(r), 1));
      row[logits.dim(1) - 3] = last;
    }
  }
};

template <class Bug> void killed() {
  const Finding f = exact(kSampledChain, with([] { return std::make_unique<Bug>(); }));
  EXPECT_FALSE(f.holds);
}

TEST(ConstraintMutants, WithoutABugTheChainIsExact) { EXPECT_TRUE(exact(kSampledChain, with({})).holds); }
TEST(ConstraintMutants, IgnoredMasksAreKilled) { killed<IgnoresMasks>(); }
TEST(ConstraintMutants, MasksOfRootsAreKilled) { killed<MasksOfRoots>(); }
TEST(ConstraintMutants, MasksThatMissATokenAreKilled) { killed<MasksTooShort>(); }

}  // namespace
}  // namespace foretoken::test

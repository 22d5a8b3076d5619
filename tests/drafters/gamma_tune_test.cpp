// The policy `gamma_tune` with simulated acceptance: the lengths that it settles at, and what moves it.
#include <gtest/gtest.h>

#include "drafters/drafters.h"
#include "kernels/backend.h"
#include "kernels/philox.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

class GammaTunes : public testing::Test {
 protected:
  std::unique_ptr<LengthPolicy> make(const json& changes = json::object()) {
    json o{{"start", 4}, {"least", 1}, {"most", 16}, {"eta", 0.25}, {"expansion", 2}, {"confidence", nullptr}};
    o.update(changes);
    return gamma_tune().make(o, host_);
  }
  static Budget asked(LengthPolicy& policy, SequenceId id = 1) {
    const std::vector<PastOnly> past(1, {.id = id, .length = 10, .batch = 1, .room = {kMaxNodes, kMaxPath}});
    return policy.budgets(past).at(0);
  }
  // A round in which so many of the drafted levels were accepted.
  static void tell(LengthPolicy& policy, int drafted, int accepted, SequenceId id = 1) {
    SequenceReport r{};
    r.id = id;
    r.judged = true;
    r.drafted = r.depth = drafted;
    r.accepted = accepted;
    r.rejected = accepted < drafted;
    StepReport report;
    report.sequences.push_back(r);
    policy.observe(report);
  }
  // The mean length of the last of so many rounds with a drafter of which each level is accepted with this chance.
  static double settled(LengthPolicy& policy, double alpha, int rounds = 400) {
    double sum = 0;
    for (int i = 0; i < rounds; ++i) {
      const int depth = asked(policy).depth;
      const Draws draws{.seed = 5, .root = std::uint32_t(i)};
      int accepted = 0;
      while (accepted < depth && draws.uniform({Role::accept, std::uint32_t(accepted), 0}) < alpha) ++accepted;
      tell(policy, depth, accepted);
      if (2 * i >= rounds) sum += depth;
    }
    return 2 * sum / rounds;
  }

  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  PagePool pool_{*backend_, 64, 1};
  ModelInfo target_;
  Host host_{*backend_, pool_, target_, {}, false};
};

TEST_F(GammaTunes, GrowsToTheMostWhereAllIsAcceptedAndFallsToTheLeastWhereNothingIs) {
  EXPECT_EQ(settled(*make(), 1), 16);
  EXPECT_EQ(settled(*make(), 0), 1);
  EXPECT_EQ(settled(*make({{"least", 2}, {"most", 5}}), 1), 5);
  EXPECT_EQ(settled(*make({{"least", 2}, {"most", 5}}), 0), 2);
}

TEST_F(GammaTunes, ABetterDrafterIsAskedForMore) {
  double before = 1;
  for (const double alpha : {0.3, 0.6, 0.8, 0.9}) {
    const double length = settled(*make(), alpha);
    EXPECT_GT(length, before + 0.3) << alpha;
    before = length;
  }
  EXPECT_GT(before, 5);
}

TEST_F(GammaTunes, FollowsADrafterThatChangesWithinAFewRounds) {
  const auto policy = make();
  EXPECT_EQ(settled(*policy, 0), 1);
  EXPECT_EQ(settled(*policy, 1, 60), 16);
  EXPECT_EQ(settled(*policy, 0, 60), 1);
}

// By hand: 4 levels stand for an average of 3. One accepted of 4 makes it 2.5, which is rounded up, then none 1.875;
// all of 4 make it 3.75.
TEST_F(GammaTunes, OneRoundMovesTheAverageByItsWeight) {
  const auto down = make(), up = make(), far = make({{"eta", 1}}), more = make({{"expansion", 10}});
  EXPECT_EQ(asked(*down), (Budget{5, 4}));
  tell(*down, 4, 1);
  EXPECT_EQ(asked(*down).depth, 4);
  tell(*down, 4, 0);
  EXPECT_EQ(asked(*down).depth, 3);
  asked(*up);
  tell(*up, 4, 4);
  EXPECT_EQ(asked(*up).depth, 5);
  asked(*far);
  tell(*far, 4, 0);
  EXPECT_EQ(asked(*far).depth, 1);
  asked(*more);
  tell(*more, 4, 4);
  EXPECT_EQ(asked(*more).depth, 7) << "3 + (14 - 3) / 4";
}

TEST_F(GammaTunes, AShortDraftThatWasAcceptedSaysNothing) {
  const auto policy = make();
  asked(*policy);
  for (int i = 0; i < 20; ++i) {
    tell(*policy, 2, 2);
    tell(*policy, 0, 0);
  }
  EXPECT_EQ(asked(*policy).depth, 4);
  tell(*policy, 2, 0);
  tell(*policy, 2, 0);
  EXPECT_EQ(asked(*policy).depth, 3) << "a rejection does";
}

TEST_F(GammaTunes, EachSequenceHasItsOwnAndAForgottenOneBeginsAnew) {
  const auto policy = make();
  asked(*policy, 1);
  asked(*policy, 2);
  for (int i = 0; i < 20; ++i) tell(*policy, 16, 0, 1);
  EXPECT_EQ(asked(*policy, 1).depth, 1);
  EXPECT_EQ(asked(*policy, 2).depth, 4);
  Sequence ended;
  ended.id = 1;
  policy->forget(ended);
  EXPECT_EQ(asked(*policy, 1).depth, 4);
}

TEST_F(GammaTunes, ConfidenceIsTheBudgetsAndTheTraits) {
  json o{{"start", 9}, {"least", 1}, {"most", 6}, {"eta", 0.25}, {"expansion", 2}, {"confidence", 0.4}};
  EXPECT_EQ(asked(*gamma_tune().make(o, host_)), (Budget{7, 6, 0.4f}));
  const PolicyTraits traits = gamma_tune().traits(o, target_);
  EXPECT_EQ(traits.most, (Budget{7, 6, 0.4f}));
  EXPECT_FALSE(traits.learns);
  o["least"] = 7;
  EXPECT_TRUE(says(sentence_of([&] { (void)gamma_tune().traits(o, target_); }),
                   "'gamma_tune' has 'least' 7 above 'most' 6; raise 'most'"));
}

}  // namespace
}  // namespace foretoken::test

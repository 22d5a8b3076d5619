// exact, of many joint outcomes in one engine: the same outcomes as one by one, of one sequence and of several each;
// planted bugs are detected; where drafts depend on the other sequences, which they may, it goes one by one.
#include "experiments/conformance/components.h"
#include "tests/laws/mutant_scenario.h"

namespace foretoken::test {
namespace {

const json kNear{{"name", "draft_model"}, {"model", "table:other"}};

void expect_equal(const Subject& s, ExactCase c) {
  const Finding alone = exact(s, c);
  EXPECT_TRUE(alone.holds) << alone.what;
  EXPECT_GT(alone.accepted, 0) << alone.what;
  for (const int at_once : {2, 7, 16}) {
    c.at_once = at_once;
    const Finding f = exact(s, c);
    EXPECT_TRUE(f.holds) << f.what;
    EXPECT_EQ(f.cases, alone.cases) << f.what;
    EXPECT_EQ(f.accepted, alone.accepted) << f.what;
    EXPECT_EQ(f.rejected, alone.rejected) << f.what;
  }
}

TEST(AtOnce, TheOutcomesAreThoseOfOneByOne) {
  const Registries r = with_scripted(all_registries());
  for (const char* verifier : {"speculative_sampling", "block_verification", "coupled"})
    expect_equal(subject(r, kNear, {{"name", verifier}}), three_tokens());
  for (const char* kinds : {"mixed", "without_replacement"})
    expect_equal(subject(r, random_tree(1, kinds), {{"name", "traversal_verification"}}, 3), two_tokens());
}

TEST(AtOnce, SoTheyAreWithStopTokensAndTheLengthLimit) {
  ExactCase c = three_tokens();
  c.scenario.stop_tokens = {2}, c.max_new_tokens = 3;
  expect_equal(subject(all_registries(), kNear, kSampling), c);
}

TEST(AtOnce, SoTheyAreOfTwoSequencesEachAndOfSamples) {
  ExactCase c = two_tokens();
  c.prompts = {{0, 1}, {0, 1}}, c.tokens = 2;
  expect_equal(subject(all_registries(), kNear, kSampling), c);
  c.samples = true;
  expect_equal(subject(all_registries(), kNear, kSampling), c);
}

TEST(AtOnce, TheDepthIsCutAsItIsOneByOne) {
  ExactCase c = three_tokens();
  const Subject s = subject(all_registries(), kNear, kSampling);
  const long all = exact(s, c).cases;
  c.at_once = 16, c.most_ways = all;
  EXPECT_EQ(exact(s, c).cut_to, 0);
  c.most_ways = all - 1;
  EXPECT_EQ(exact(s, c).cut_to, 2);
}

TEST(AtOnce, ABugOfTheRuleIsKilled) {
  for (const Bug bug : {Bug::no_residual, Bug::accepts_too_often}) {
    ExactCase c = three_tokens();
    c.at_once = 16;
    EXPECT_TRUE(refuted(exact(subject(with_rule(all_registries(), bug), kNear, kMutant), c)));
  }
}

// Drafts for the first of its requests alone.
class OfTheFirst : public Drafter {
 public:
  OfTheFirst(std::unique_ptr<Drafter> inner, Backend& backend) : inner_(std::move(inner)), backend_(backend) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = inner_->draft(requests);
    for (std::size_t i = 1; i < trees.size(); ++i)
      trees[i] = DraftTree::rooted(backend_, requests[i].sequence->last(), 1);
    return trees;
  }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  std::unique_ptr<Drafter> inner_;
  Backend& backend_;
};

TEST(AtOnce, DraftsThatDependOnOtherSequencesAreFollowedOneByOne) {
  const Subject s = around(subject(all_registries(), kNear, kSampling), [](std::unique_ptr<Drafter> made, Host& host) {
    return std::make_unique<OfTheFirst>(std::move(made), host.backend());
  });
  expect_equal(s, three_tokens());
}

}  // namespace
}  // namespace foretoken::test

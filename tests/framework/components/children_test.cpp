// Rules for children, each proven exact by enumeration: siblings without repeats, siblings that are the first finishers
// of one race, a whole chain at once.
#include "framework/components/host.h"
#include "tests/framework/components/children_rules.h"
#include "tests/framework/components/proof_scenario.h"
#include "verifiers/verifiers.h"

namespace foretoken::test {
namespace {

// The root with n siblings of one draw.
Draft family(const PathTable& draft, int n, bool race) {
  return [&draft, n, race](Backend& backend, const Draws& draws) {
    DraftTree tree = DraftTree::rooted(backend, 0, n);
    const Warp warp{1};
    tree.q.distributions.push_back(backend.distributions(draft.logits({}), {&warp, 1}));
    const TokenDraw draw{.draws = draws,
                         .name = {Role::draft, 1, 0},
                         .position = draws.root,
                         .race = race,
                         .siblings = std::uint8_t(n),
                         .to = tree.tokens.row<Token>(1)};
    backend.draw(tree.q.distributions[0], {&draw, 1}, {});
    for (int i = 0; i < n; ++i) tree.grow(0, Drawn::without_replacement);
    return tree;
  };
}

TEST(Children, DrawnWithoutReplacementAreVerifiedExactly) {
  RuleVerifier<WithoutReplacement<false>> exact;
  RuleVerifier<WithoutReplacement<true>> forgetful;
  double worst = 0;
  for (unsigned seed = 1; seed <= 8; ++seed)
    for (const int impossible : {0, 2}) {
      const PathTable target(5, seed), draft(5, 100 + seed, 1.5f, impossible);
      for (const int n : {1, 2, 4}) {
        const PathDistribution expected = path_distribution(target, 1);
        EXPECT_LT(total_variation(emitted_distribution(exact, target, family(draft, n, false), 1), expected), 1e-12)
            << seed;
        worst = std::max(
            worst, total_variation(emitted_distribution(forgetful, target, family(draft, n, false), 1), expected));
      }
    }
  EXPECT_GT(worst, 1e-3) << "a rule for independent siblings is biased here, and the enumeration must detect it";
}

TEST(Children, ThatAreFinishersOfARaceLeaveTheCoupledOutputExact) {
  ReferenceBackend backend;
  PagePool pool(backend, 4096, 1);
  const ModelInfo info;
  Host host(backend, pool, info, {}, false);
  const auto verifier = coupled().make({}, host);
  for (unsigned seed = 1; seed <= 6; ++seed) {
    const PathTable target(4, seed), draft(4, 50 + seed, 1.5f, int(seed % 2));
    for (const int n : {2, 3})
      EXPECT_LT(total_variation(emitted_distribution(*verifier, target, family(draft, n, true), 1),
                                path_distribution(target, 1)),
                1e-12);
  }
}

// Siblings of a race are different tokens, so several of them match the target's token more often than one does.
TEST(Children, OfARaceMatchTheTargetsTokenMoreOftenThanOne) {
  ReferenceBackend backend;
  PagePool pool(backend, 4096, 1);
  const ModelInfo info;
  Host host(backend, pool, info, {}, false);
  const auto verifier = coupled().make({}, host);
  const PathTable target(40, 3), draft(40, 4);
  int hits[5] = {};
  for (std::uint32_t root = 0; root < 400; ++root) {
    const Draws draws{1, 2, root, 0};
    Token next[5] = {};
    for (const int n : {1, 2, 4}) {
      const Verdict v = verdict_of(backend, *verifier, target, family(draft, n, true)(backend, draws), draws);
      hits[n] += v.length, next[n] = v.tokens[0];
    }
    EXPECT_TRUE(next[1] == next[2] && next[2] == next[4]) << "the output does not depend on the draft";
  }
  EXPECT_GT(hits[2], hits[1]);
  EXPECT_GT(hits[4], hits[2]);
}

TEST(Children, OfAChainAreVerifiedTogetherExactly) {
  RuleVerifier<Block> block;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    const PathTable target(3, seed), draft(3, 70 + seed);
    const Draft chain = [&](Backend& backend, const Draws& draws) {
      DraftTree tree = DraftTree::rooted(backend, 0, 2);
      for (int n = 1; n <= 2; ++n) {
        const Warp warp{1};
        tree.q.distributions.push_back(backend.distributions(draft.logits(paths_of(tree).back()), {&warp, 1}));
        const TokenDraw draw{.draws = draws, .name = {Role::draft, std::uint32_t(n), 0}};
        backend.draw(tree.q.distributions.back(), {&draw, 1}, tree.tokens.rows(n, 1));
        tree.grow(n - 1, Drawn::chain);
      }
      return tree;
    };
    EXPECT_LT(total_variation(emitted_distribution(block, target, chain, 3), path_distribution(target, 3)), 1e-12)
        << seed;
  }
}

}  // namespace
}  // namespace foretoken::test

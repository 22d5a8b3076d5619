// What is refused of a proposal's distributions and of a verdict, and where the limits are.
#include "framework/components/verifier.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using test::sentence_of;

// 0 -> {1, 2}, 1 -> {3}; node n holds the token 10 + n, of a vocabulary of 14.
struct Verdicts : ::testing::Test {
  Verdicts() {
    tree.guess(0, 11), tree.guess(0, 12), tree.guess(1, 13);
    verdict.follow(1, 11), verdict.follow(3, 13), verdict.finish(0);
  }
  std::string refusal(const Verdict& v) const {
    return sentence_of([&] { expect_verdict(v, tree, 14, "X"); });
  }
  ReferenceBackend backend;
  DraftTree tree = DraftTree::rooted(backend, 10, 4);
  Verdict verdict;
};

TEST_F(Verdicts, OfAPathAreTaken) {
  EXPECT_EQ(refusal(verdict), "");
  Verdict none, other;
  none.finish(13);
  EXPECT_EQ(refusal(none), "") << "the greatest token of the vocabulary";
  other.follow(2, 12), other.finish(0);
  EXPECT_EQ(refusal(other), "");
  verdict.next = -1, verdict.length = 99;
  EXPECT_EQ(refusal(verdict), "") << "a distribution was not finite: the engine fails the sequence";
}

TEST_F(Verdicts, ThatARuleDidNotFinishAreRefused) {
  verdict.next = Verdict::kOverflown;
  EXPECT_EQ(refusal(verdict), "X rejected more than 256 guesses of one tree; let it reject each node at most once");
  verdict.next = Verdict::kUnfinished;
  EXPECT_EQ(refusal(verdict),
            "X ended a round without a token of the target's own; let every path of the rule end with "
            "Verdict::finish of a drawn token (a draw of weights that are all 0 gives none)");
}

TEST_F(Verdicts, OfMoreNodesThanTheTreeHasAreRefused) {
  const std::string behind =
      " nodes of a tree that has 3 below its root; let it follow each node once, with "
      "Verdict::follow";
  for (const int length : {-1, 4, kMaxPath + 1}) {
    verdict.length = length;
    EXPECT_EQ(refusal(verdict), "X accepted " + std::to_string(length) + behind);
  }
}

TEST_F(Verdicts, OfTheLongestPathAreTakenAndOfALongerOneRefused) {
  DraftTree chain = DraftTree::rooted(backend, 10, kMaxPath + 1);
  Verdict v;
  for (int n = 0; n < kMaxPath; ++n) v.follow(chain.guess(n, 1), 1);
  chain.guess(kMaxPath, 1);
  v.finish(2);
  EXPECT_EQ(sentence_of([&] { expect_verdict(v, chain, 14, "X"); }), "");
  v.length = kMaxPath + 1;
  EXPECT_TRUE(test::says(sentence_of([&] { expect_verdict(v, chain, 14, "X"); }), "X accepted 65 nodes"));
}

TEST_F(Verdicts, OfTokensBeyondTheVocabularyAreRefused) {
  for (const Token x : {-1, 14}) {
    verdict.tokens[2] = x;
    EXPECT_EQ(refusal(verdict), "X emitted the token " + std::to_string(x) +
                                    ", outside the target's vocabulary of 14; emit tokens of "
                                    "the tree, and end with Verdict::finish of a drawn one");
  }
}

TEST_F(Verdicts, OfNoNodeHaveATokenOfTheVocabularyToo) {
  for (const Token x : {-4, 14}) {
    Verdict none;
    none.finish(x);
    EXPECT_TRUE(test::says(refusal(none), "X emitted the token " + std::to_string(x) + ", outside"));
  }
}

TEST_F(Verdicts, OfNodesThatAreNoPathAreRefused) {
  // What lies behind the last node looks like a child of node 1.
  *tree.parents.row<std::int32_t>(4) = 1, *tree.known.row<Token>(4) = 13;
  const auto refused = [&](int first, int second, int node, int above) {
    verdict.path[0] = first, verdict.path[1] = second;
    verdict.tokens[0] = Token(10 + first), verdict.tokens[1] = 13;
    EXPECT_EQ(refusal(verdict), "X accepted the node " + std::to_string(node) + ", which is no child of the node " +
                                    std::to_string(above) + " before it; follow the children that Trial::child names");
  };
  refused(0, 3, 0, 0);
  refused(3, 3, 3, 0);
  refused(2, 3, 3, 2);
  refused(1, 4, 4, 1);
  refused(1, -1, -1, 1);
}

TEST_F(Verdicts, OfOtherTokensThanTheNodesHoldAreRefused) {
  verdict.tokens[1] = 12;
  EXPECT_EQ(refusal(verdict),
            "X accepted the node 3, which holds the token 13, but emitted the token 12 for it; follow a node with its "
            "own token, Trial::tokens");
  verdict.tokens[1] = 13, verdict.tokens[2] = 5;
  EXPECT_EQ(refusal(verdict),
            "X emitted the token 5 last, but its Verdict::next is 0; end with Verdict::finish, which sets both");
}

// A tree with one child of the root, drawn `how`, and a q of `vocab` tokens for it (0: none).
std::string refusal_of_distribution(Drawn how, int vocab, bool of_the_child = false) {
  ReferenceBackend backend;
  DraftTree tree = DraftTree::rooted(backend, 0, 1);
  tree.grow(0, how);
  if (of_the_child) tree.q.distributions.emplace_back();
  if (vocab > 0) {
    const Tensor logits = Tensor::host({1, vocab}, DType::f32);
    std::ranges::fill(logits.values<float>(), 0.0f);
    tree.q.distributions.push_back(backend.distributions(logits, std::vector<Warp>(1)));
  }
  return sentence_of([&] { expect_distributions(tree, 5, "X"); });
}

TEST(Distributions, OfDrawnNodesAreExpectedOverTheTargetsVocabulary) {
  EXPECT_EQ(refusal_of_distribution(Drawn::certain, 0), "");
  EXPECT_EQ(refusal_of_distribution(Drawn::chain, 5), "");
  const std::string lacks =
      "X proposed node 1 as drawn but gave no distribution q for its parent; fill "
      "Proposal::distributions, or propose it as certain";
  EXPECT_EQ(refusal_of_distribution(Drawn::chain, 0), lacks);
  EXPECT_EQ(refusal_of_distribution(Drawn::chain, 5, true), lacks) << "a q of another node";
  const auto other = [](int node, int vocab) {
    return "X proposed after node " + std::to_string(node) + " a distribution q of " + std::to_string(vocab) +
           " tokens, the target's have 5; take q from NodeDistributions or Backend::distributions, of a model of the "
           "target's vocabulary";
  };
  EXPECT_EQ(refusal_of_distribution(Drawn::chain, 6), other(0, 6));
  EXPECT_EQ(refusal_of_distribution(Drawn::chain, 4), other(0, 4));
  EXPECT_EQ(refusal_of_distribution(Drawn::certain, 6, true), other(1, 6));
}

TEST(Distributions, WithoutRowsAreRefused) {
  ReferenceBackend backend;
  DraftTree tree = DraftTree::rooted(backend, 0, 1);
  tree.grow(0, Drawn::chain);
  const Tensor logits = Tensor::host({1, 5}, DType::f32);
  for (const Tensor& rows : {Tensor(), Tensor::host({1, 3}, DType::u8)}) {
    tree.q.distributions = {{logits, rows}};
    EXPECT_TRUE(test::says(sentence_of([&] { expect_distributions(tree, 5, "X"); }), "X proposed after node 0"));
  }
}

TEST(Distributions, AddUpToOneButForTheRoundingOfFloats) {
  const auto refusal = [](std::vector<float> sums) { return sentence_of([&] { expect_normalized(sums, "X"); }); };
  EXPECT_EQ(refusal({1, 1 - 0x1p-24f, 1 + 0x1p-23f, 1 - 9e-7f, 1 + 9e-7f}), "");
  EXPECT_EQ(refusal({}), "");
  const auto refused = [&](std::vector<float> sums, int node, const std::string& sum) {
    EXPECT_EQ(refusal(std::move(sums)), "X proposed after node " + std::to_string(node) +
                                            " a distribution q that adds up to " + sum +
                                            ", not to 1; take q from NodeDistributions or Backend::distributions, and "
                                            "do not change its logits afterwards");
  };
  refused({1, 1.000002f}, 1, "1.000002");
  refused({0.999998f}, 0, "0.999998");
  refused({1, 1, 0}, 2, "0.000000");
  refused({2}, 0, "2.000000");
  EXPECT_TRUE(test::says(refusal({std::numeric_limits<float>::quiet_NaN()}), "after node 0", "nan"));
}

}  // namespace
}  // namespace foretoken::test

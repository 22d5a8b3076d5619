// Penalties at nodes of draft trees, by hand: of every token of the sequence as it is now, and of every node above.
#include "framework/decode/node_distributions.h"

#include <numeric>

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"

namespace foretoken::test {
namespace {

constexpr int kVocab = 80;

struct Nodes : ::testing::Test {
  ReferenceBackend backend;
  NodeDistributions distributions{backend};
  Sequence sequence;

  Nodes() {
    sequence.id = 3, sequence.tokens = {79}, sequence.prompt_length = 1;
    sequence.sampling.frequency_penalty = 1;
    sequence.limits.max_new_tokens = kVocab;
    sequence.tally = Tally(sequence.sampling.penalties(), {}, sequence.tokens);
  }
  // The logits after a node, which were 0.
  std::vector<float> adjusted(const DraftTree& tree, int node) {
    const Tensor logits = Tensor::host({1, kVocab}, DType::f32);
    std::fill_n(logits.data<float>(), kVocab, 0.0f);
    const DistributionAfter row{&sequence, &tree, node, Warp{1}};
    (void)distributions.of(logits, {&row, 1});
    return {logits.data<float>(), logits.data<float>() + kVocab};
  }
};

TEST_F(Nodes, EveryNodeAboveCounts) {
  DraftTree chain = DraftTree::rooted(backend, sequence.last(), Budget{kMaxPath + 1, kMaxPath});
  for (int n = 0; n < kMaxPath; ++n) chain.guess(n, Token(n));
  for (const int depth : {0, 1, 2, 7, 8, 9, 31, kMaxPath}) {
    std::vector<float> want(kVocab, 0);
    std::fill_n(want.begin(), depth, -1.0f);
    EXPECT_EQ(adjusted(chain, depth), want) << "after " << depth << " nodes";
  }
}

TEST_F(Nodes, TheTallyIsThatOfTheSequenceHoweverManyTokensARoundGave) {
  std::vector<float> want(kVocab, 0);
  for (const int more : {1, 2, 8, 9, 20, 1}) {
    std::vector<Token> emitted(static_cast<std::size_t>(more));
    std::iota(emitted.begin(), emitted.end(), Token(sequence.generated()));
    std::fill_n(want.begin() + sequence.generated(), more, -1.0f);
    ASSERT_EQ(sequence.append(emitted), more);
    const DraftTree root = DraftTree::rooted(backend, sequence.last(), 0);
    EXPECT_EQ(adjusted(root, 0), want) << "after " << more << " tokens more";
  }
}

}  // namespace
}  // namespace foretoken::test

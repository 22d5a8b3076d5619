// Log-probabilities of what a round emitted, against the definition: the softmax of the logits, warped or not.
#include <cmath>
#include <limits>

#include "framework/components/verifier.h"
#include "kernels/reference/reference_backend.h"
#include "tests/framework/components/proof_scenario.h"

namespace foretoken::test {
namespace {

constexpr int kVocab = 4;

// Two sequences: a root with a child and its child, and a bare root. Row r of the logits belongs to node r, then to
// the other root.
struct LogProbabilities : ::testing::Test {
  LogProbabilities() {
    trees.push_back(DraftTree::rooted(backend, 0, 2));
    trees[0].guess(0, 3), trees[0].guess(1, 0);
    trees.push_back(DraftTree::rooted(backend, 0, 0));
    for (int i = 0; i < 4 * kVocab; ++i) logits.data<float>()[i] = float(i * 7 % 11) / 3;
    for (int i = 0; i < 4 * kVocab; ++i) before.data<float>()[i] = float(i * 5 % 13) / 4;
    for (Verdict* v : {&verdict(0), &verdict(1)}) {
      *v = {};
      for (float& l : v->logprobs) l = kUnset;
    }
    verdict(0).follow(1, 3), verdict(0).follow(2, 0), verdict(0).finish(2);
    verdict(1).finish(1);
    for (Verdict* v : {&verdict(0), &verdict(1)})
      for (float& l : v->logprobs) l = kUnset;
  }
  Verdict& verdict(int i) const { return reinterpret_cast<Verdict*>(verdicts.raw())[i]; }
  // Of a row, at a temperature, by the definition.
  static double log_softmax(const Tensor& of, int row, Token x, double temperature) {
    double sum = 0;
    const auto logit = [&](Token y) { return double(of.data<float>()[row * kVocab + y]) / temperature; };
    for (Token y = 0; y < kVocab; ++y) sum += std::exp(logit(y));
    return logit(x) - std::log(sum);
  }
  void run(std::uint8_t first_warped, std::uint8_t second_warped, bool adjusted) {
    const Warp warp{.temperature = 0.5f, .raw_normalizer = true};
    const Distributions p = backend.distributions(logits, std::vector<Warp>(4, warp));
    const Distributions raw = adjusted ? backend.distributions(before, std::vector<Warp>(4, warp)) : Distributions();
    const std::vector<Draws> draws(2);
    const std::vector<std::uint32_t> positions{1, 1};
    Staging staging(backend);
    const Trials trials(backend, trees, p, draws, positions, staging);
    const Tensor warped = Tensor::host({2}, DType::u8);
    warped.data<std::uint8_t>()[0] = first_warped, warped.data<std::uint8_t>()[1] = second_warped;
    log_probabilities(backend, trials, verdicts, warped, raw);
  }
  void expect(int i, std::initializer_list<double> wanted) const {
    int k = 0;
    for (const double w : wanted) {
      EXPECT_NEAR(verdict(i).logprobs[k], w, 1e-5) << "sequence " << i << ", token " << k;
      ++k;
    }
    EXPECT_EQ(verdict(i).logprobs[k], kUnset) << "sequence " << i << ": written behind the last token";
  }

  static constexpr float kUnset = 77;
  ReferenceBackend backend;
  std::vector<DraftTree> trees;
  Tensor logits = Tensor::host({4, kVocab}, DType::f32), before = Tensor::host({4, kVocab}, DType::f32);
  Tensor verdicts = Tensor::host({2, std::int64_t(sizeof(Verdict))}, DType::u8);
};

TEST_F(LogProbabilities, AreThoseOfEachNodesOwnRow) {
  run(0, 1, false);
  expect(0, {log_softmax(logits, 0, 3, 1), log_softmax(logits, 1, 0, 1), log_softmax(logits, 2, 2, 1)});
  expect(1, {log_softmax(logits, 3, 1, 0.5)});
}

TEST_F(LogProbabilities, OfTheModelAreFromBeforeAdjustment) {
  run(1, 0, true);
  expect(0, {log_softmax(logits, 0, 3, 0.5), log_softmax(logits, 1, 0, 0.5), log_softmax(logits, 2, 2, 0.5)});
  expect(1, {log_softmax(before, 3, 1, 1)});
  run(0, 0, true);
  expect(0, {log_softmax(before, 0, 3, 1), log_softmax(before, 1, 0, 1), log_softmax(before, 2, 2, 1)});
}

TEST_F(LogProbabilities, OfRowsThatLieApart) {
  const Tensor wide = Tensor::host({4, kVocab + 3}, DType::f32);
  std::ranges::fill(wide.values<float>(), 1000.0f);
  backend.copy(before, wide.columns(0, kVocab));
  const Tensor dense = before;
  before = wide.columns(0, kVocab);
  run(0, 0, true);
  expect(0, {log_softmax(dense, 0, 3, 1), log_softmax(dense, 1, 0, 1), log_softmax(dense, 2, 2, 1)});
  expect(1, {log_softmax(dense, 3, 1, 1)});
}

// What a verdict must not hold is refused later, by expect_verdict; here nothing may be read by it.
TEST_F(LogProbabilities, AreNotOfWhatATrialLacks) {
  verdict(0).path[0] = 3, verdict(0).path[1] = -1, verdict(1).tokens[0] = kVocab;
  run(0, 0, false);
  EXPECT_NEAR(verdict(0).logprobs[0], log_softmax(logits, 0, 3, 1), 1e-5);
  EXPECT_EQ(verdict(0).logprobs[1], kUnset) << "of a tree of 3 nodes";
  EXPECT_EQ(verdict(0).logprobs[2], kUnset) << "of a node below the first";
  EXPECT_EQ(verdict(1).logprobs[0], kUnset) << "of a vocabulary of 4 tokens";
  verdict(0).path[0] = 1, verdict(0).path[1] = 2, verdict(0).tokens[0] = -1, verdict(0).tokens[2] = 0;
  verdict(1).tokens[0] = 0;
  for (float& l : verdict(0).logprobs) l = kUnset;
  run(0, 0, false);
  EXPECT_EQ(verdict(0).logprobs[0], kUnset) << "of no token";
  EXPECT_NEAR(verdict(0).logprobs[2], log_softmax(logits, 2, 0, 1), 1e-5) << "0 is a token";
  EXPECT_NEAR(verdict(1).logprobs[0], log_softmax(logits, 3, 0, 1), 1e-5);
}

TEST_F(LogProbabilities, OfARoundWithoutAnOutcomeAreNone) {
  const auto untouched = [&](const char* what) {
    run(0, 0, false);
    for (const float l : verdict(0).logprobs) EXPECT_EQ(l, kUnset) << what;
  };
  verdict(0).next = -1;
  untouched("a distribution that is not finite");
  verdict(0).next = 2, verdict(0).length = -1;
  untouched("a length below 0");
  verdict(0).length = kMaxPath + 1;
  untouched("a length above the longest path");
}

TEST_F(LogProbabilities, OfTheTokenZeroAndOfTheLongestPath) {
  verdict(0).next = 0, verdict(0).tokens[2] = 0;
  verdict(1).length = kMaxPath, verdict(1).next = 1;
  for (int k = 0; k < kMaxPath; ++k) verdict(1).path[k] = 0, verdict(1).tokens[k] = Token(k % kVocab);
  verdict(1).tokens[kMaxPath] = 1;
  run(0, 0, false);
  expect(0, {log_softmax(logits, 0, 3, 1), log_softmax(logits, 1, 0, 1), log_softmax(logits, 2, 0, 1)});
  for (int k = 0; k <= kMaxPath; ++k)
    EXPECT_NEAR(verdict(1).logprobs[k], log_softmax(logits, 3, k < kMaxPath ? Token(k % kVocab) : 1, 1), 1e-5) << k;
}

}  // namespace
}  // namespace foretoken::test

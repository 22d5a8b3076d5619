// Rules for children on the GPU's lanes: verdicts are the host's, byte for byte. Compiled by nvcc, so that they become
// kernels.
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "tests/framework/components/children_rules.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {
namespace {

constexpr int kTrees = 24;

// The results of one backend for the same logits and draws.
struct Made {
  Tensor tokens, verdicts;  // on the host
};

template <class Rule>
Made judged(Backend& backend, std::span<const DraftTree> trees, const Distributions& p, std::span<const Draws> draws) {
  const std::vector<std::uint32_t> positions(trees.size(), 9);
  Staging staging(backend);
  const Trials trials(backend, trees, p, draws, positions, staging);
  const Tensor to = backend.allocate({kTrees, std::int64_t(sizeof(Verdict))}, DType::u8);
  RuleVerifier<Rule>().verify(backend, trials, to);
  Made m{Tensor::host(trials.tokens().shape(), DType::i32), Tensor::host(to.shape(), DType::u8)};
  backend.copy(trials.tokens(), m.tokens);
  backend.copy(to, m.verdicts);
  backend.synchronize();
  return m;
}

template <class Rule> Made made(Backend& backend, int vocab, int children, bool chain, bool race, unsigned seed) {
  const int nodes = children + 1;
  const Tensor p_logits = random_tensor({kTrees * nodes, vocab}, seed, 2);
  Tensor q_logits = random_tensor({kTrees * nodes, vocab}, seed + 1, 1);
  for (std::int64_t i = 0; i < q_logits.elements(); ++i) q_logits.data<float>()[i] += p_logits.data<float>()[i];
  std::vector<Warp> warps;
  for (int i = 0; i < kTrees * nodes; ++i) warps.push_back({1, i % 3 == 0 ? 0 : vocab / 2 + 1});
  const Distributions p = backend.distributions(backend.upload(p_logits), warps),
                      q = backend.distributions(backend.upload(q_logits), warps);
  std::vector<DraftTree> trees;
  std::vector<Draws> draws;
  std::vector<TokenDraw> wanted;
  for (int i = 0; i < kTrees; ++i) {
    DraftTree tree = DraftTree::rooted(backend, 0, children);
    draws.push_back({seed, std::uint64_t(i), 9, 0});
    for (int n = 0; n < children; ++n) {
      if (chain || n == 0)
        wanted.push_back({.draws = draws.back(),
                          .name = {Role::draft, std::uint32_t(n + 1), 0},
                          .position = std::uint32_t(9 + n),
                          .race = race,
                          .siblings = std::uint8_t(chain ? 1 : children),
                          .row = i * nodes + n,
                          .to = tree.tokens.row<Token>(n + 1)});
      tree.grow(chain ? n : 0, chain ? Drawn::chain : Drawn::without_replacement);
      tree.q.distributions.push_back(q.slice(i * nodes + n, 1));
    }
    trees.push_back(std::move(tree));
  }
  backend.draw(q, wanted, {});
  return judged<Rule>(backend, trees, p, draws);
}

template <class Rule> long same(int vocab, int children, bool chain, bool race, unsigned seed) {
  const auto cuda = make_cuda_backend({});
  const auto host = make_cpu_backend(4);
  const Made a = made<Rule>(*cuda, vocab, children, chain, race, seed),
             b = made<Rule>(*host, vocab, children, chain, race, seed);
  long accepted = 0;
  for (std::int64_t i = 0; i < a.tokens.elements(); ++i)
    if (i % (children + 1) != 0) {
      EXPECT_EQ(a.tokens.data<Token>()[i], b.tokens.data<Token>()[i]) << vocab << " node " << i;
    }
  for (int i = 0; i < kTrees; ++i) {
    const auto& x = *reinterpret_cast<const Verdict*>(a.verdicts.row<std::uint8_t>(i));
    const auto& y = *reinterpret_cast<const Verdict*>(b.verdicts.row<std::uint8_t>(i));
    EXPECT_EQ(x.next, y.next) << vocab << " tree " << i;
    EXPECT_EQ(x.length, y.length) << vocab << " tree " << i;
    for (int k = 0; k < std::min(x.length, y.length); ++k)
      EXPECT_EQ(x.tokens[k], y.tokens[k]) << vocab << " tree " << i << " token " << k;
    accepted += y.length;
  }
  return accepted;
}

TEST(ChildrenOnTheGpu, WithoutReplacementAreVerifiedAsOnTheHost) {
  long accepted = 0;
  for (const int vocab : {5, 300, 4097, 32000})
    for (const bool race : {false, true})
      for (const int children : {1, 3, 100})
        if (children < 100 || vocab == 300)
          accepted += same<WithoutReplacement<false>>(vocab, children, false, race, 7);
  EXPECT_GT(accepted, 0);
}

TEST(ChildrenOnTheGpu, OfAChainAreVerifiedTogetherAsOnTheHost) {
  long accepted = 0;
  for (const int vocab : {5, 300, 4097, 32000}) accepted += same<Block>(vocab, 5, true, false, 8);
  EXPECT_GT(accepted, 0);
}

TEST(ChildrenOnTheGpu, SumsAndDrawsOfCombinedDistributionsAreTheHosts) {
  for (const int vocab : {5, 257, 1026, 4097, 32000, 128256}) same<Combining>(vocab, 2, false, false, 9);
}

TEST(ChildrenOnTheGpu, ARuleThatRejectsMoreGuessesThanALaneStoresOverflows) {
  const auto cuda = make_cuda_backend({});
  const Made m = made<Refusing>(*cuda, 300, 2, false, false, 1);
  EXPECT_EQ(reinterpret_cast<const Verdict*>(m.verdicts.raw())->next, Verdict::kOverflown);
}

}  // namespace
}  // namespace foretoken::test

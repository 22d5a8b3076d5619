// Trial: children are found without a search, and a rule may reject as many guesses as a tree has.
#include <array>
#include <chrono>
#include <cmath>

#include "framework/components/host.h"
#include "tests/framework/components/children_rules.h"
#include "tests/framework/components/proof_scenario.h"
#include "tests/support/sentence.h"
#include "verifiers/verifiers.h"

namespace foretoken::test {
namespace {

std::unique_ptr<Verifier> make(Entry<Verifier> entry, Backend& backend) {
  PagePool pool(backend, 4096, 1);
  const ModelInfo info;
  Host host(backend, pool, info, {}, false);
  return entry.make({}, host);
}

// A rule that visits every node by Trial::child only, and sums up what it visits.
struct Walk {
  long* visited;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane&, const Trial& t) const {
    for (int node = 0; node < t.nodes; ++node)
      for (int c = t.child(node, node); c >= 0; c = t.child(node, c)) visited[node] += c;
    Verdict v;
    v.finish(0);
    return v;
  }
};

// A tree with distributions whose values do not matter, over a vocabulary that has its tokens.
std::vector<long> walk(const DraftTree& tree, int vocab) {
  ReferenceBackend backend;
  const Tensor logits = Tensor::host({tree.nodes, vocab}, DType::f32);
  std::ranges::fill(logits.values<float>(), 0.0f);
  const Distributions p = backend.distributions(logits, std::vector<Warp>(std::size_t(tree.nodes)));
  Staging staging(backend);
  const Draws draws;
  const std::uint32_t position = 1;
  const Trials trials(backend, {&tree, 1}, p, {&draws, 1}, {&position, 1}, staging);
  const Tensor verdicts = Tensor::host({1, std::int64_t(sizeof(Verdict))}, DType::u8);
  std::vector<long> visited(std::size_t(tree.nodes), 0);
  RuleVerifier<Walk>(Walk{visited.data()}).verify(backend, trials, verdicts);
  return visited;
}

TEST(Trial, ChildrenAreThoseOfTheNodeInOrderWithoutAbsentOnes) {
  ReferenceBackend backend;
  DraftTree tree = DraftTree::rooted(backend, 0, 8);
  for (const auto& [parent, token] :
       std::vector<std::pair<int, Token>>{{0, 5}, {1, 5}, {0, -1}, {0, 7}, {1, 6}, {4, -1}, {0, 7}, {3, 9}})
    tree.guess(parent, token);
  EXPECT_EQ(walk(tree, 10), (std::vector<long>{1 + 4 + 7, 2 + 5, 0, 8, 0, 0, 0, 0, 0}));
}

// A search for each child takes 60,000 * 60,000 / 2 steps: seconds.
TEST(Trial, ChildrenOfALargeTreeAreFoundWithoutASearch) {
  ReferenceBackend backend;
  constexpr int kNodes = 60000;
  DraftTree tree = DraftTree::rooted(backend, 0, kNodes - 1);
  std::vector<long> expected(kNodes, 0);
  for (int n = 1; n < kNodes; ++n) {
    const int parent = n % 3 == 0 ? n / 3 : n - 1;
    tree.guess(parent, 0);
    expected[std::size_t(parent)] += n;
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(walk(tree, 1), expected);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(seconds, 0.25);
}

// The root with `guesses` certain children, the tokens 0, 1, ...: all but the last tokens of the vocabulary.
Draft star(int guesses) {
  return [guesses](Backend& backend, const Draws&) {
    DraftTree tree = DraftTree::rooted(backend, 0, guesses);
    for (Token x = 0; x < guesses; ++x) tree.guess(0, x);
    return tree;
  };
}

TEST(Trial, AllGuessesOfAWideTreeMayBeRejected) {
  ReferenceBackend backend;
  const auto verifier = make(speculative_sampling(), backend);
  for (const int guesses : {64, 65, 80}) {
    const PathTable target(guesses + 9, unsigned(guesses));
    EXPECT_LT(total_variation(emitted_distribution(*verifier, target, star(guesses), 1), path_distribution(target, 1)),
              1e-12)
        << guesses;
  }
  const PathTable none_of_them(264, 3, 1.5f, 0, 255);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Verdict v = verdict_of(backend, *verifier, none_of_them, star(255)(backend, {}), {seed, 1, 9, 0});
    EXPECT_EQ(v.length, 0);
    EXPECT_GE(v.next, 255);
  }
}

// Notes the child of each node that holds each token, and the mass that is left after each child.
struct Matching {
  std::vector<int>* matches;
  std::vector<double>* left;
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    for (int n = 0; n < t.nodes; ++n)
      for (Token x = 0; x < t.vocab; ++x) matches->push_back(t.match(n, x));
    for (int c = t.child(0, 0); c >= 0; c = t.child(0, c)) left->push_back(t.mass_after(lane, 0, c));
    Verdict v;
    v.finish(0);
    return v;
  }
};

TEST(Trial, MatchesAndMassesThatAreLeftByHand) {
  ReferenceBackend backend;
  DraftTree tree = DraftTree::rooted(backend, 0, 5);
  const Tensor logits = Tensor::host({6, 4}, DType::f32);
  for (int r = 0; r < 6; ++r)
    for (const int x : {0, 1, 2, 3})
      logits.row<float>(r)[x] = float(std::log(std::array{0.4, 0.3, 0.2, 0.1}[std::size_t(x)]));
  tree.q.distributions = {backend.distributions(logits.rows(0, 1), std::vector<Warp>(1, Warp{1}))};
  // Children of the root: 1 (drawn without replacement), an absent guess, 3 (without replacement), a guess of 0.
  *tree.tokens.row<Token>(tree.grow(0, Drawn::without_replacement)) = 1;
  tree.guess(0, -1);
  *tree.tokens.row<Token>(tree.grow(0, Drawn::without_replacement)) = 3;
  tree.guess(0, 0);
  tree.guess(1, 3);
  const Distributions p = backend.distributions(logits, std::vector<Warp>(6, Warp{1}));
  Staging staging(backend);
  const Draws draws;
  const std::uint32_t position = 1;
  const Trials trials(backend, {&tree, 1}, p, {&draws, 1}, {&position, 1}, staging);
  std::vector<int> matches;
  std::vector<double> left;
  RuleVerifier<Matching>(Matching{&matches, &left})
      .verify(backend, trials, Tensor::host({1, std::int64_t(sizeof(Verdict))}, DType::u8));
  EXPECT_EQ(matches, (std::vector<int>{4,  1,  -1, 3,  -1, -1, -1, 5,  -1, -1, -1, -1,
                                       -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
  ASSERT_EQ(left.size(), 3u);
  EXPECT_NEAR(left[0], 0.7, 1e-6) << "without token 1";
  EXPECT_NEAR(left[1], 0.6, 1e-6) << "without tokens 1 and 3";
  EXPECT_NEAR(left[2], 0.6, 1e-6) << "a guess takes nothing of what siblings are drawn from";
}

// Notes the position of its sequence.
struct Placing {
  template <class Lane> Verdict operator()(Lane&, const Trial& t) const {
    Verdict v;
    v.finish(Token(t.position));
    return v;
  }
};

TEST(Trial, ManySequencesHaveEachTheirOwn) {
  ReferenceBackend backend;
  constexpr int kMany = 1000;
  const Tensor logits = Tensor::host({kMany, 4}, DType::f32);
  std::ranges::fill(logits.values<float>(), 0.0f);
  const Distributions p = backend.distributions(logits, std::vector<Warp>(kMany));
  std::vector<DraftTree> trees;
  std::vector<std::uint32_t> positions;
  for (int i = 0; i < kMany; ++i)
    trees.push_back(DraftTree::rooted(backend, 0, 0)), positions.push_back(std::uint32_t(i + 1));
  Staging staging(backend);
  const Trials trials(backend, trees, p, std::vector<Draws>(kMany), positions, staging);
  const Tensor verdicts = Tensor::host({kMany, std::int64_t(sizeof(Verdict))}, DType::u8);
  RuleVerifier<Placing>().verify(backend, trials, verdicts);
  for (int i = 0; i < kMany; ++i) ASSERT_EQ(reinterpret_cast<const Verdict*>(verdicts.raw())[i].next, i + 1);
}

TEST(Trial, SumsOfProposalsAreThoseOfEachNodeOfATree) {
  ReferenceBackend backend;
  std::vector<DraftTree> trees;
  for (int i = 0; i < 2; ++i) trees.push_back(DraftTree::rooted(backend, 0, 2));
  const Tensor logits = Tensor::host({6, 4}, DType::f32);
  std::ranges::fill(logits.values<float>(), 0.0f);
  const Distributions p = backend.distributions(logits, std::vector<Warp>(6, Warp{1}));
  const Tensor own = Tensor::host({1, 4}, DType::f32);
  std::ranges::fill(own.values<float>(), 0.0f);
  const Distributions q = backend.distributions(own, std::vector<Warp>(1, Warp{1}));
  own.data<float>()[2] = float(std::log(3.0));  // now its four probabilities are 1/4, 1/4, 3/4 and 1/4
  trees[0].q.distributions = {{}, q};
  trees[1].q.distributions = {q};
  for (DraftTree& t : trees)
    for (int n = 0; n < 2; ++n) t.guess(n, 1);
  Staging staging(backend);
  const std::vector<Draws> draws(2);
  const std::vector<std::uint32_t> positions(2, 1);
  const Trials trials(backend, trees, p, draws, positions, staging);
  const Tensor sums = Tensor::host({6}, DType::f32);
  proposal_sums(backend, trials, sums);
  const std::vector<float> expected{1, 1.5f, 1, 1.5f, 1, 1};
  for (std::size_t n = 0; n < 6; ++n) EXPECT_NEAR(sums.data<float>()[n], expected[n], 1e-6) << n;
}

TEST(Trial, ARuleThatRejectsMoreGuessesThanALaneStoresOverflows) {
  const PathTable target(5, 1);
  ReferenceBackend backend;
  RuleVerifier<Refusing> refusing;
  const DraftTree tree = star(2)(backend, {});
  const Verdict v = verdict_of(backend, refusing, target, tree, {});
  EXPECT_EQ(v.next, Verdict::kOverflown);
  EXPECT_TRUE(test::says(test::sentence_of([&] { expect_verdict(v, tree, 5, "the verifier 'refusing'"); }),
                         "the verifier 'refusing'", "more than 256 guesses", "at most once"));
}

}  // namespace
}  // namespace foretoken::test

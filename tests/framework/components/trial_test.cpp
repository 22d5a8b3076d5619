// Trial: children are found without a search, and a rule may reject as many guesses as a tree has.
#include <chrono>

#include "framework/components/host.h"
#include "tests/framework/components/children_rules.h"
#include "tests/framework/components/proof_scenario.h"
#include "tests/support/sentence.h"
#include "verifiers/verifiers.h"

namespace foretoken::testing {
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
  RuleVerifier<Walk>({}, Walk{visited.data()}).verify(backend, trials, verdicts);
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
}  // namespace foretoken::testing

// The numbers of a round and the acceptance of a verifier, computed by hand for one small tree over four tokens.
#include "experiments/trace/node_numbers.h"

#include <cmath>

#include <gtest/gtest.h>

#include "experiments/trace/recorder.h"
#include "framework/components/host.h"
#include "framework/components/registry.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

constexpr double kNear = 1e-6;  // probabilities are made from logits of f32

// The root has two drawn children, the tokens 3 and 1; after 3 come two guesses, the tokens 2 and 0.
class SmallTree : public testing::Test {
 protected:
  Distributions distributions(const std::vector<std::vector<double>>& probabilities) {
    const Tensor logits = Tensor::host({std::int64_t(probabilities.size()), 4}, DType::f32);
    for (std::size_t i = 0; i < probabilities.size(); ++i)
      for (std::size_t x = 0; x < 4; ++x) logits.row<float>(std::int64_t(i))[x] = float(std::log(probabilities[i][x]));
    return backend.distributions(logits, std::vector<Warp>(probabilities.size(), Warp{.temperature = 1}));
  }
  DraftTree tree(Drawn how) {
    DraftTree t = DraftTree::rooted(backend, 0, 4);
    for (const Token x : {3, 1}) *t.known.row<Token>(t.grow(0, how)) = x;
    t.guess(1, 2), t.guess(1, 0);
    t.q.distributions = {distributions({{0.2, 0.4, 0.2, 0.2}})};
    return t;
  }
  // What `use` makes of the trials of these trees.
  template <class Use> auto with_trials(const std::vector<DraftTree>& trees, const Use& use) {
    const std::vector<double> after_the_root{0.4, 0.45, 0.1, 0.05}, after_3{0.25, 0.25, 0.3, 0.2}, even(4, 0.25);
    std::vector<std::vector<double>> rows;
    for (std::size_t i = 0; i < trees.size(); ++i)
      for (const auto& row : {after_the_root, after_3, even, even, even}) rows.push_back(row);
    const std::vector<Draws> draws(trees.size());
    const std::vector<std::uint32_t> positions(trees.size(), 1);
    Staging staging(backend);
    return use(Trials(backend, trees, distributions(rows), draws, positions, staging));
  }
  std::vector<NodeNumbers> numbers(const std::vector<DraftTree>& trees, const std::vector<Verdict>& verdicts) {
    const Tensor decided = Tensor::host({std::int64_t(verdicts.size()), std::int64_t(sizeof(Verdict))}, DType::u8);
    std::copy(verdicts.begin(), verdicts.end(), decided.data<Verdict>());
    return with_trials(trees, [&](const Trials& trials) { return node_numbers(backend, trials, decided); });
  }
  Reach reach(const std::string& name, Drawn how) {
    Registries registries;
    register_verifiers(registries);
    PagePool pool(backend, 64, 1);
    const ModelInfo info;
    Host host(backend, pool, info, {}, false);
    const nlohmann::json config{{"name", name}};
    const Judge judge{registries.verifiers.make(config, host), registries.verifiers.traits(config, host.target())};
    return with_trials({tree(how)},
                       [&](const Trials& trials) { return PathReach().of(backend, trials, judge, name).at(0); });
  }
  static Verdict verdict(const std::vector<int>& path, Token next) {
    Verdict v;
    for (const int n : path) v.path[v.length++] = n;
    v.finish(next);
    return v;
  }

  ReferenceBackend backend;
};

// 3 is accepted with 0.05 / 0.2; then p - q leaves 4/5 for 0 and 1/5 for 1, which is accepted with 0.2 / 0.4. A guess
// is accepted with p, the second with 0.25 of the 0.7 that the first leaves.
TEST_F(SmallTree, HasTheNumbersOfRecursiveRejection) {
  const std::vector<NodeNumbers> all =
      numbers({tree(Drawn::independent), tree(Drawn::independent)}, {verdict({}, 1), verdict({1}, 3)});
  ASSERT_EQ(all.size(), 10u);
  const double p[] = {0, 0.05, 0.45, 0.3, 0.25}, q[] = {0, 0.2, 0.4, 1, 1}, accept[] = {0, 0.25, 0.5, 0.3, 0.25 / 0.7};
  for (std::size_t i = 0; i < 10; ++i) {
    const NodeNumbers& of = all[i];
    EXPECT_NEAR(of.p, p[i % 5], kNear) << i;
    EXPECT_NEAR(of.q, q[i % 5], kNear) << i;
    EXPECT_NEAR(of.accept, accept[i % 5], kNear) << i;
    EXPECT_NEAR(of.overlap, i % 5 == 0 ? 0.2 + 0.4 + 0.1 + 0.05 : -1, kNear) << i;
  }
  EXPECT_NEAR(all[0].p_next, 0.45, kNear) << "the token 1 after the root";
  EXPECT_NEAR(all[0].q_next, 0.4, kNear);
  EXPECT_NEAR(all[6].p_next, 0.2, kNear) << "the token 3 after the accepted one";
  EXPECT_EQ(all[6].q_next, -1) << "nothing was drawn there";
}

// Without replacement 1 was drawn with 0.4 / 0.8.
TEST_F(SmallTree, KnowsOfEarlierSiblingsThatWereNotPutBack) {
  const std::vector<NodeNumbers> all = numbers({tree(Drawn::without_replacement)}, {verdict({}, 1)});
  EXPECT_NEAR(all[1].accept, 0.25, kNear);
  EXPECT_NEAR(all[2].accept, 0.2 * 0.8 / 0.4, kNear);
}

TEST_F(SmallTree, IsReachedAsTheRulesDecide) {
  const auto expect = [&](const Reach& found, double first, double second) {
    ASSERT_EQ(found.size(), 2u);
    ASSERT_EQ(found[0].size(), 1u);
    ASSERT_EQ(found[1].size(), 2u);
    EXPECT_NEAR(found[0][0], first, kNear);
    EXPECT_NEAR(found[1][0], first, kNear);
    EXPECT_NEAR(found[1][1], second, kNear);
  };
  expect(reach("speculative_sampling", Drawn::independent), 0.25 + 0.75 * 0.5, 0.25 * (0.3 + 0.25));
  expect(reach("target_match", Drawn::independent), 0.05 + 0.45, 0.05 * (0.3 + 0.25));
  EXPECT_TRUE(says(sentence_of([&] { reach("k_seq", Drawn::without_replacement); }), "'k_seq'", "'without_replacement'",
                   "leave it out"));
  EXPECT_TRUE(says(sentence_of([&] { reach("coupled", Drawn::certain); }), "'coupled'", "races", "leave it out"));
}

}  // namespace
}  // namespace foretoken::test

// exact: the joint distribution of the next tokens is the target's, within 1e-12, over every outcome of every draw of
// the production engine, for all registered components and for random trees.
#include <set>

#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/laws.h"
#include "tests/laws/subjects.h"
#include "tests/support/in_turn.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

using namespace conformance;

namespace {

const std::vector<Tokens> kPrompts = {{0}, {1, 0, 1, 0}, {1, 1, 0, 1, 1, 0, 0}};

struct Total {
  long accepted = 0, rejected = 0, pairs = 0, paths = 0;
};

// Subjects that promise exactness in their turn, prompt by prompt.
Total expect_exact(const ExactCase& pattern, const std::vector<Subject>& all,
                   const std::vector<Tokens>& prompts = kPrompts) {
  std::vector<Subject> exact_ones;
  for (const Subject& s : all)
    if (soundness_of(s.registries, s.configs.verifier).exact()) exact_ones.push_back(s);
  Total total{.pairs = long(exact_ones.size())};
  const std::vector<Subject> some = in_turn(exact_ones, 4);
  for (const Subject& s : some) {
    for (const Tokens& prompt : prompts) {
      ExactCase c = pattern;
      c.prompts = {prompt};
      const Finding f = exact(s, c);
      EXPECT_TRUE(f.holds) << f.what << " after [" << text_of(prompt) << "]";
      total.accepted += f.accepted, total.rejected += f.rejected, total.paths += f.cases;
    }
  }
  EXPECT_GE(total.paths, long(some.size()));
  if (some.size() < exact_ones.size()) return total;  // a few may accept nothing, as drafters that find nothing
  EXPECT_GT(total.accepted, 0);
  EXPECT_GT(total.rejected, 0);
  EXPECT_GT(total.paths, 10 * total.pairs);
  return total;
}

std::vector<Subject> registered(int length) { return subjects(all_registries(), length); }

std::vector<Subject> trees(int length, const std::vector<std::string>& kinds, int shapes) {
  const Registries registries = with_scripted(all_registries());
  std::vector<nlohmann::json> drafters;
  for (const std::string& k : kinds)
    for (int seed = 1; seed <= shapes; ++seed) drafters.push_back(random_tree(seed, k));
  return subjects(registries, length, drafters);
}

TEST(Exact, EveryPairIsThere) {
  const Registries r = all_registries();
  std::set<std::string> drafters, verifiers;
  for (const Subject& s : registered(1))
    drafters.insert(s.configs.drafter["name"]), verifiers.insert(s.configs.verifier["name"]);
  EXPECT_EQ(drafters.size(), r.drafters.entries().size()) << "a drafter that no verifier takes";
  const std::vector<std::string> names = r.verifiers.names();
  EXPECT_EQ(std::ranges::count_if(names,
                                  [&](const std::string& name) {
                                    return soundness_of(r, r.verifiers.complete({{"name", name}})).exact();
                                  }),
            std::ptrdiff_t(verifiers.size()))
      << "an exact verifier that takes no drafter";
}

TEST(Exact, TwoTokensChainOfThree) {
  expect_exact({.target = {.vocab = 2, .seed = 3, .impossible = 0.1}, .tokens = 4}, registered(3));
}

TEST(Exact, TwoTokensFiveRounds) {
  expect_exact({.target = {.vocab = 2, .seed = 4, .impossible = 0.1}, .tokens = 5}, registered(2));
}

TEST(Exact, ThreeTokensChainOfTwo) {
  expect_exact({.target = {.vocab = 3, .seed = 5}, .tokens = 3}, registered(2), {{1, 0, 1, 0}});
}

TEST(Exact, FourTokensChainOfTwo) {
  expect_exact({.target = {.vocab = 4, .order = 2, .seed = 7, .impossible = 0.2}, .tokens = 3}, registered(2),
               {{3, 1, 0, 3, 1}});
}

TEST(Exact, FiveTokensWholeContext) {
  expect_exact({.target = {.vocab = 5, .order = 0, .seed = 9, .impossible = 0.25}, .tokens = 2}, registered(1));
}

TEST(Exact, TemperatureAndGreedy) {
  expect_exact({.target = {.vocab = 3, .seed = 11}, .tokens = 3, .scenario = {.sampling = {.temperature = 0.6f}}},
               registered(2));
  expect_exact({.target = {.vocab = 2, .seed = 12}, .tokens = 4, .scenario = {.sampling = {.temperature = 1.7f}}},
               registered(2));
}

TEST(Exact, EndsByStopTokenInsideAnAcceptedPath) {
  expect_exact({.target = {.vocab = 3, .seed = 13, .impossible = 0.05}, .tokens = 3, .scenario = {.stop_tokens = {2}}},
               registered(2));
  expect_exact({.target = {.vocab = 2, .seed = 14, .impossible = 0.05}, .tokens = 4, .scenario = {.stop_tokens = {1}}},
               registered(3));
}

TEST(Exact, EndsByLengthLimit) {
  expect_exact({.target = {.vocab = 3, .seed = 15}, .tokens = 3, .max_new_tokens = 3}, registered(3));
  expect_exact({.target = {.vocab = 2, .seed = 16, .impossible = 0.1}, .tokens = 4, .max_new_tokens = 4},
               registered(3));
}

// Draft and target distributions get the same warp; top-p and similar cuts may leave the draft tokens that the target
// excludes.
TEST(Exact, Warps) {
  const TableModel::Options target{.vocab = 4, .order = 2, .seed = 17, .impossible = 0.1};
  for (const Sampling& s : {Sampling{.temperature = 1, .top_k = 2}, Sampling{.temperature = 1, .top_p = 0.7f},
                            Sampling{.temperature = 1.3f, .min_p = 0.3f},
                            Sampling{.temperature = 0.9f, .top_k = 3, .top_p = 0.8f, .min_p = 0.1f}})
    expect_exact({.target = target, .tokens = 3, .scenario = {.sampling = s}}, registered(2), {{0}, {3, 1, 0, 3, 1}});
}

TEST(Exact, RandomTreesOfTwoTokens) {
  const Total t = expect_exact({.target = {.vocab = 2, .seed = 19, .impossible = 0.1}, .tokens = 3},
                               trees(3, {"mixed", "independent", "certain"}, 6), {{0}, {1, 1}});
  EXPECT_GE(t.pairs, 18) << "one or two verifiers for each tree";
}

TEST(Exact, RandomTreesOfThreeTokens) {
  expect_exact({.target = {.vocab = 3, .order = 2, .seed = 21}, .tokens = 2}, trees(4, {"mixed", "independent"}, 5),
               {{0}, {2, 1}});
}

TEST(Exact, RandomTreesOfSiblingsWithoutRepeatsAndOfMarginals) {
  const Total t = expect_exact({.target = {.vocab = 3, .order = 2, .seed = 21, .impossible = 0.1}, .tokens = 2},
                               trees(4, {"without_replacement", "marginals", "chain"}, 4), {{0}, {2, 1}});
  EXPECT_GE(t.pairs, 12) << "one or two verifiers for each tree";
}

// The lane's sums as the CPU backend computes them.
TEST(Exact, OnTheCpuBackend) {
  expect_exact({.target = {.vocab = 3, .order = 2, .seed = 25}, .tokens = 3, .backend = [] { return cpu_backend(1); }},
               registered(2), {{0, 2}});
  expect_exact({.target = {.vocab = 2, .order = 2, .seed = 26}, .tokens = 3, .backend = [] { return cpu_backend(1); }},
               trees(3, {"mixed"}, 3), {{0, 1}});
}

// Without those that are made of several drafters: where two of these draw, one sequence has as many outcomes as can be
// enumerated, and other tests do.
TEST(Exact, TwoSequencesAtOnceAreIndependent) {
  for (const Subject& s : registered(2)) {
    if (s.configs.drafter.contains("drafters")) continue;
    const Finding f =
        exact(s, {.target = {.vocab = 2, .seed = 23, .impossible = 0.1}, .prompts = {{0, 1}, {0, 1}}, .tokens = 2});
    EXPECT_TRUE(f.holds) << f.what;
  }
}

}  // namespace
}  // namespace foretoken::test

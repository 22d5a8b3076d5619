// The program for the best tree against all trees of up to seven nodes, and by hand.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "drafters/tree_shape.h"
#include "experiments/report/tree_counts.h"

namespace foretoken {
namespace {

using Paths = std::vector<std::vector<int>>;

// Every set of children subtrees with `nodes` nodes, the first of them at `place`: as paths below their parent.
std::vector<Paths> forests(int nodes, int place) {
  if (nodes == 0) return {{}};
  std::vector<Paths> all;
  for (int own = 1; own <= nodes; ++own)
    for (const Paths& below : forests(own - 1, 0))
      for (const Paths& after : forests(nodes - own, place + 1)) {
        Paths paths{{place}};
        for (std::vector<int> path : below) path.insert(path.begin(), place), paths.push_back(path);
        paths.insert(paths.end(), after.begin(), after.end());
        all.push_back(paths);
      }
  return all;
}

double tau_of(const Paths& paths, const BestTrees::Probabilities& p) {
  double tau = 1;
  for (const std::vector<int>& path : paths) {
    double accepted = 1;
    for (std::size_t l = 0; l < path.size(); ++l)
      accepted *= l < p.size() && std::size_t(path[l]) < p[l].size() ? p[l][std::size_t(path[l])] : 0;
    tau += accepted;
  }
  return tau;
}

int levels_of(const Paths& paths) {
  std::size_t most = 0;
  for (const std::vector<int>& path : paths) most = std::max(most, path.size());
  return int(most);
}

double best_of_all(int nodes, int levels, const BestTrees::Probabilities& p) {
  double best = 1;
  for (int n = 2; n <= nodes; ++n)
    for (const Paths& paths : forests(n - 1, 0))
      if (levels_of(paths) <= levels) best = std::max(best, tau_of(paths, p));
  return best;
}

TEST(BestTrees, AllTreesOfUpToSevenNodesAreNoBetter) {
  EXPECT_EQ(forests(6, 0).size(), 132u) << "Catalan's number of 6";
  std::mt19937 engine(5);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int trial = 0; trial < 24; ++trial) {
    BestTrees::Probabilities p(1 + std::size_t(engine() % 6));
    for (auto& level : p) {
      level.resize(std::size_t(engine() % 5));
      double left = 1;  // places exclude each other, in any order of size
      for (double& place : level) place = left * uniform(engine) * uniform(engine), left -= place;
    }
    const BestTrees trees(p, 7);
    ASSERT_EQ(trees.levels(), int(p.size()));
    for (int nodes = 1; nodes <= 7; ++nodes)
      for (int levels = 0; levels <= trees.levels(); ++levels) {
        EXPECT_NEAR(trees.tau(nodes, levels), best_of_all(nodes, levels, p), 1e-12)
            << "trial " << trial << ", " << nodes << " nodes, " << levels << " levels";
        const Paths shape = trees.shape(nodes, levels);
        EXPECT_NEAR(tau_of(shape, p), trees.tau(nodes, levels), 1e-12);
        EXPECT_LT(int(shape.size()), nodes);
        EXPECT_LE(levels_of(shape), levels);
        EXPECT_EQ(shape.empty() ? 1 : TreeShape::read(shape).nodes().size(), shape.size() + 1);
      }
  }
}

TEST(BestTrees, AChainWhereFirstChildrenAreLikelyAndSiblingsWhereTheyAreNot) {
  const BestTrees chain({{0.8, 0.1}, {0.5, 0.2}}, 4), siblings({{0.4, 0.3}, {0.2, 0.1}}, 4);
  EXPECT_DOUBLE_EQ(chain.tau(3, 2), 1 + 0.8 + 0.4);
  EXPECT_EQ(chain.shape(3, 2), (Paths{{0}, {0, 0}}));
  EXPECT_DOUBLE_EQ(chain.tau(4, 2), 1 + 0.8 + 0.4 + 0.16) << "the second below the first";
  EXPECT_EQ(chain.shape(4, 2), (Paths{{0}, {0, 0}, {0, 1}}));
  EXPECT_EQ(chain.shape(4, 1), (Paths{{0}, {1}})) << "no more places at one level";
  EXPECT_DOUBLE_EQ(siblings.tau(3, 2), 1.7);
  EXPECT_EQ(siblings.shape(3, 2), (Paths{{0}, {1}}));
  EXPECT_EQ(siblings.shape(1, 2), Paths{});
}

// A place that is never accepted is worth its node only for the places behind it.
TEST(BestTrees, PlacesAreTakenInOrder) {
  const BestTrees trees({{0.1, 0.0, 0.6}}, 4);
  EXPECT_DOUBLE_EQ(trees.tau(3, 1), 1.1);
  EXPECT_DOUBLE_EQ(trees.tau(4, 1), 1.7);
  EXPECT_EQ(trees.shape(4, 1), (Paths{{0}, {1}, {2}}));
  EXPECT_EQ(BestTrees({{0.0}}, 4).shape(4, 1), Paths{});
}

TEST(BestTrees, TwoHundredAndFiftySixNodes) {
  const BestTrees trees(BestTrees::Probabilities(8, {0.6, 0.15, 0.08, 0.04, 0.02, 0.01}), 256);
  double before = 1;
  for (int n = 2; n <= 256; ++n) {
    EXPECT_GT(trees.tau(n, 8), before) << n;
    before = trees.tau(n, 8);
  }
  EXPECT_EQ(trees.shape(256, 8).size(), 255u);
}

}  // namespace
}  // namespace foretoken

// Orders of the literature, by enumeration: which verifier accepts more of one round on trees of the same shape and the
// same distributions.
#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "experiments/conformance/rounds.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::test {

using namespace conformance;

namespace {

constexpr int kSeeds = 25;

// The expected number of accepted tokens of a round.
double accepted(const char* verifier, const RoundCase& c) {
  ReferenceBackend backend;
  return enumerate_round(all_registries(), {{"name", verifier}}, c, backend).accepted;
}

RoundCase chain_of(int length, int seed) {
  RoundCase c = one_family(Drawn::chain, 1, 3, seed);
  c.name = "chain of " + std::to_string(length) + ", seed " + std::to_string(seed);
  for (int n = 1; n < length; ++n) c.nodes.push_back({n, Drawn::chain});
  return c;
}

// A number in [0, ways) that depends on a seed, a node and a purpose.
int choose(int ways, int seed, int node, std::uint32_t purpose) {
  const std::uint64_t hash = std::uint64_t(seed) * 0x9E3779B97F4A7C15ull + purpose;
  const Draws draws{(hash ^ std::uint64_t(node + 2)) * 0x100000001B3ull};
  return int(draws.uniform({Role::draft, 0, purpose}) * ways);
}

// A tree of six nodes of one kind, up to four siblings and three levels. The trees are this file's own, so that what is
// reported of them stands when the kit's trees change.
RoundCase tree_of(Drawn drawn, int seed) {
  constexpr int kNodes = 6;
  RoundCase c = random_round({drawn}, kNodes, 4, seed);
  c.nodes.clear();
  std::vector<int> depth{0};
  for (int parent = 0; int(c.nodes.size()) < kNodes && parent <= int(c.nodes.size()); ++parent) {
    int count = parent == 0 ? 4 - choose(3, seed, parent, 2) : choose(5, seed, parent, 2);
    if (depth[std::size_t(parent)] >= 3) count = 0;
    count = std::min(count, kNodes - int(c.nodes.size()));
    for (int i = 0; i < count; ++i) {
      c.nodes.push_back({parent, drawn, i > 0 && i + 1 == count && choose(5, seed, parent, 4) == 0});
      depth.push_back(depth[std::size_t(parent)] + 1);
    }
  }
  return c;
}

struct Order {
  int more = 0, less = 0;  // rounds in which the first accepts more, or less, than the second
  double gain = 0;         // the mean difference, tokens
};
using Accepted = std::function<double(int seed)>;
Order compare(const Accepted& first, const Accepted& second) {
  Order order;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const double d = first(seed) - second(seed);
    order.more += d > 1e-9, order.less += d < -1e-9, order.gain += d / kSeeds;
  }
  return order;
}

TEST(Orders, BlockVerificationAcceptsNoLessThanTokenWiseOnChains) {
  for (const int length : {2, 3, 5}) {
    const Order order = compare([=](int s) { return accepted("block_verification", chain_of(length, s)); },
                                [=](int s) { return accepted("speculative_sampling", chain_of(length, s)); });
    EXPECT_EQ(order.less, 0) << length;
    EXPECT_GT(order.more, kSeeds / 2) << length;
  }
}

TEST(Orders, OfAChainTraversalIsBlockVerification) {
  for (int seed = 1; seed <= kSeeds; ++seed)
    EXPECT_NEAR(accepted("traversal_verification", chain_of(4, seed)),
                accepted("block_verification", chain_of(4, seed)), 1e-12);
}

TEST(Orders, TraversalAcceptsMoreThanRecursionOnTrees) {
  for (const Drawn d : {Drawn::independent, Drawn::without_replacement, Drawn::certain}) {
    const char* recursive = d == Drawn::without_replacement ? "without_replacement" : "speculative_sampling";
    const auto tree = [=](int seed) { return tree_of(d, seed); };
    const Order order = compare([=](int s) { return accepted("traversal_verification", tree(s)); },
                                [=](int s) { return accepted(recursive, tree(s)); });
    RecordProperty(std::string("rounds_with_less_") + name_of(d), order.less);
    EXPECT_LE(order.less, d == Drawn::without_replacement ? 1 : 0) << name_of(d);
    EXPECT_GE(order.more, 4 * order.less) << name_of(d);
    EXPECT_EQ(order.more > 0, d != Drawn::certain) << name_of(d);  // of guesses the joint weight is the product of p
  }
}

// Of one family given p, q and k. Not a theorem for every p and q; what is found is reported.
TEST(Orders, SiblingsWithoutRepeatsAreAcceptedMoreThanIndependentOnes) {
  for (const int k : {2, 3}) {
    const Order order =
        compare([=](int s) { return accepted("without_replacement", one_family(Drawn::without_replacement, k, 5, s)); },
                [=](int s) { return accepted("speculative_sampling", one_family(Drawn::independent, k, 5, s)); });
    RecordProperty("rounds_with_less_" + std::to_string(k), order.less);
    EXPECT_GT(order.gain, 0) << k;
    EXPECT_GT(order.more, 4 * order.less) << k;
  }
}

TEST(Orders, SeveralSiblingsAreAcceptedNoLessThanOne) {
  for (const char* verifier : {"k_seq", "speculative_sampling", "multi_path_block", "traversal_verification"})
    for (const int k : {2, 4}) {
      const Order order = compare([=](int s) { return accepted(verifier, one_family(Drawn::independent, k, 5, s)); },
                                  [=](int s) { return accepted(verifier, one_family(Drawn::independent, 1, 5, s)); });
      EXPECT_EQ(order.less, 0) << verifier << ", " << k;
      EXPECT_GT(order.more, kSeeds / 2) << verifier << ", " << k;
    }
}

TEST(Orders, TheBestOfSeveralPathsIsAcceptedMoreThanTheFirst) {
  const auto paths = [](int seed) {  // two chains of two below the root
    RoundCase c = one_family(Drawn::independent, 2, 3, seed);
    c.nodes.push_back({1, Drawn::chain});
    c.nodes.push_back({2, Drawn::chain});
    return c;
  };
  const Order order = compare([&](int s) { return accepted("multi_path_block", paths(s)); },
                              [&](int s) { return accepted("block_verification", paths(s)); });
  EXPECT_EQ(order.less, 0);
  EXPECT_GT(order.more, kSeeds / 2);
}

}  // namespace
}  // namespace foretoken::test

// draft_model: a chain of draws, each with the one row that it was drawn from.
#include <gtest/gtest.h>

#include "tests/drafters/recorded_trees.h"

namespace foretoken::test {
namespace {

TEST(DraftModel, every_node_is_drawn_from_one_row) {
  const auto backend = make_reference_backend();
  const TreeScenario s;
  const TableModel draft = s.draft_of("table:other");
  int nodes = 0;
  for (const Proposed& p :
       proposals(s, {{"name", "draft_model"}, {"model", "table:other"}}, *backend, random_requests(6, 6, 10, 30, 1)))
    for (int n = 1; n < p.tree.nodes; ++n, ++nodes) {
      EXPECT_TRUE(p.parent(n) == n - 1 && p.drawn(n) == Drawn::chain);
      const Distributions& q = p.tree.q.distributions.at(std::size_t(n) - 1);
      ASSERT_EQ(q.count(), 1);
      const std::vector<double> expected = draft.distribution(p.context(n - 1), s.sampling.warp());
      for (Token x = 0; x < 6; ++x) EXPECT_EQ(q[0](x), expected[std::size_t(x)]);
    }
  EXPECT_GT(nodes, 100);
}

}  // namespace
}  // namespace foretoken::test

// Trees that share an allocation: each has its own rows, and the memory lives as long as any tree.
#include <algorithm>

#include <gtest/gtest.h>

#include "framework/components/drafter.h"
#include "kernels/error.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::test {
namespace {

// A backend that reports to be a device with memory of its own, and counts allocations.
class Apart final : public ReferenceBackend {
 public:
  Device device() const override { return {Device::Kind::cuda, 0}; }
  Tensor allocate(Shape shape, DType dtype) override {
    ++allocations;
    const Tensor t = Tensor::host(shape, dtype);
    return Tensor(t.owner(), t.raw(), shape, dtype, device());
  }
  int allocations = 0;
};

std::vector<Token> known(const DraftTree& tree) {
  return {tree.known.data<Token>(), tree.known.data<Token>() + tree.nodes};
}

TEST(DraftTreeTest, trees_of_a_batch_use_their_own_rows) {
  const auto backend = make_reference_backend();
  std::vector<Sequence> sequences(3);
  std::vector<DraftRequest> requests(3);
  const std::vector<Budget> budgets{{3, 2}, {1, 0}, {2, 1}};
  for (std::size_t i = 0; i < 3; ++i)
    sequences[i].tokens = {1, Token(10 * i)}, requests[i].sequence = &sequences[i], requests[i].budget = budgets[i];
  std::vector<DraftTree> trees = rooted(*backend, requests);
  ASSERT_EQ(trees.size(), 3u);
  for (DraftTree& t : trees) {
    const Token root = known(t)[0];
    for (int n = 0; n + 1 < int(t.parents.dim(0)); ++n) t.guess(n, Token(root + n + 1));
    EXPECT_THROW(t.guess(0, 99), Error);
    EXPECT_THROW(t.grow(0, Drawn::chain), Error);
  }
  EXPECT_EQ(known(trees[0]), (std::vector<Token>{0, 1, 2}));
  EXPECT_EQ(known(trees[1]), (std::vector<Token>{10}));
  EXPECT_EQ(known(trees[2]), (std::vector<Token>{20, 21}));
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NO_THROW(expect_tree(
        trees[i],
        {sequences[i].last(), requests[i].budget, 100, std::vector{Drawn::certain}, std::vector{Drawn::certain}},
        "it"));
}

TEST(DraftTreeTest, match_finds_the_first_child_of_that_token) {
  const auto backend = make_reference_backend();
  DraftTree tree = DraftTree::rooted(*backend, 7, Budget{7, 5});
  EXPECT_EQ(tree.match(0, 7), -1);  // the root is no child
  const int a = tree.guess(0, 1), b = tree.guess(0, 2), c = tree.guess(b, 1), again = tree.guess(0, 2);
  EXPECT_EQ(tree.match(0, 1), a);
  EXPECT_EQ(tree.match(0, 2), b);
  EXPECT_EQ(tree.match(b, 1), c);
  EXPECT_EQ(tree.match(a, 1), -1);
  EXPECT_EQ(tree.match(again, 1), -1);
  tree.guess(0, 3, Drawn::aside);  // no guess may stand below it
  tree.grow(0, Drawn::chain);      // its token is the device's
  EXPECT_EQ(tree.match(0, 3), -1);
}

TEST(DraftTreeTest, a_tree_outlives_the_others_of_its_batch) {
  const auto backend = make_reference_backend();
  const std::vector<DraftTree::Root> roots{{7, 1}, {8, 1}, {9, 1}};
  std::vector<DraftTree> trees = DraftTree::rooted(*backend, roots);
  trees[1].guess(0, 80);
  const DraftTree kept = trees[1];
  const Tensor row = trees[2].known;
  const std::weak_ptr<void> memory = trees[0].known.owner();
  trees.clear();
  EXPECT_EQ(known(kept), (std::vector<Token>{8, 80}));
  EXPECT_EQ(*row.row<Token>(0), 9);
  EXPECT_FALSE(memory.expired());
}

TEST(DraftTreeTest, a_batch_allocates_once_on_the_device_and_bare_roots_never) {
  Apart backend;
  const std::vector<DraftTree::Root> bare{{7, 0}, {8, 0}}, some{{7, 0}, {8, 3}, {9, 2}};
  for (const DraftTree& t : DraftTree::rooted(backend, bare)) EXPECT_EQ(t.drawn_at(0), nullptr);
  EXPECT_EQ(DraftTree::rooted(backend, 7, 0).drawn_at(0), nullptr);
  EXPECT_EQ(backend.allocations, 0);
  std::vector<DraftTree> trees = DraftTree::rooted(backend, some);
  EXPECT_EQ(backend.allocations, 1);
  // Tokens that the device draws are unknown to the host, and no two nodes of the batch share an address.
  std::vector<const Token*> places;
  for (DraftTree& t : trees)
    while (t.nodes < t.parents.dim(0)) places.push_back(t.drawn_at(t.grow(t.nodes - 1, Drawn::chain)));
  ASSERT_EQ(places.size(), 5u);
  std::ranges::sort(places);
  EXPECT_TRUE(places.front() != nullptr && std::ranges::adjacent_find(places) == places.end());
}

}  // namespace
}  // namespace foretoken::test

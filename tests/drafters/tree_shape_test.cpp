// Shapes of draft trees: both forms, the order of the nodes, cuts by a budget, and what is refused.
#include "drafters/tree_shape.h"

#include <gtest/gtest.h>

#include "drafters/published_trees.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;
using test::says;

// "parent:rank" of each node below the root.
std::string text_of(const TreeShape& shape) {
  std::string s;
  for (std::size_t n = 1; n < shape.nodes().size(); ++n)
    s += (n > 1 ? " " : "") + std::to_string(shape.nodes()[n].parent) + ":" + std::to_string(shape.nodes()[n].rank);
  return s;
}

TEST(TreeShape, children_per_depth) {
  const TreeShape shape = TreeShape::read({2, 1, 2});
  EXPECT_EQ(text_of(shape), "0:0 0:1 1:0 2:0 3:0 3:1 4:0 4:1");
  EXPECT_EQ(shape.nodes()[8].depth, 3);
  EXPECT_FALSE(shape.chain());
  EXPECT_TRUE(TreeShape::read({1, 1, 1}).chain());
  EXPECT_TRUE(TreeShape::read(json::parse("[[0], [0, 0]]")).chain());
}

TEST(TreeShape, paths_in_any_order) {
  EXPECT_EQ(text_of(TreeShape::read(json::parse("[[1, 0], [0], [0, 1], [1], [0, 0], [0, 1, 0]]"))),
            "0:0 0:1 1:0 1:1 2:0 4:0");
  EXPECT_EQ(text_of(TreeShape::read(json::parse("[[0], [1], [0, 0], [1, 0], [0, 1], [1, 1]]"))),
            text_of(TreeShape::read({2, 2})));
}

// mc_sim_7b_63 of Medusa, as published.
TEST(TreeShape, a_published_shape_is_read_as_it_is) {
  const json medusa = json::parse(
      "[[0],[0,0],[1],[0,1],[2],[0,0,0],[1,0],[0,2],[3],[0,3],[4],[0,4],[2,0],[0,5],[0,0,1],[5],[0,6],[6],[0,7],"
      "[0,1,0],[1,1],[7],[0,8],[0,0,2],[3,0],[0,9],[8],[9],[1,0,0],[0,2,0],[1,2],[0,0,3],[4,0],[2,1],[0,0,4],[0,0,5],"
      "[0,0,0,0],[0,1,1],[0,0,6],[0,3,0],[5,0],[1,3],[0,0,7],[0,0,8],[0,0,9],[6,0],[0,4,0],[1,4],[7,0],[0,1,2],"
      "[2,0,0],[3,1],[2,2],[8,0],[0,5,0],[1,5],[1,0,1],[0,2,1],[9,0],[0,6,0],[0,0,0,1],[1,6],[0,7,0]]");
  const TreeShape shape = TreeShape::read(medusa);
  EXPECT_EQ(shape.nodes().size(), 64u);
  EXPECT_EQ(shape.nodes().back().depth, 4);
}

std::string text_of(const TreeShape::Cut& cut) {
  std::string s;
  for (std::size_t n = 1; n < cut.nodes.size(); ++n)
    s += (n > 1 ? " " : "") + std::to_string(cut.nodes[n].parent) + "#" + std::to_string(cut.nodes[n].number);
  s += " fed";
  for (const int n : cut.fed) s += " " + std::to_string(n);
  return s;
}

TEST(TreeShape, a_cut_keeps_the_first_levels_and_the_best_ranks) {
  const TreeShape shape = TreeShape::read({2, 2, 1});
  EXPECT_EQ(text_of(shape.cut({11, 3})), "0#1 0#2 1#3 1#4 2#5 2#6 3#7 4#8 5#9 6#10 fed 1 3 7");
  EXPECT_EQ(text_of(shape.cut({11, 2})), "0#1 0#2 1#3 1#4 2#5 2#6 fed 1 3");
  EXPECT_EQ(text_of(shape.cut({5, 3})), "0#1 0#2 1#3 1#4 fed 1 2") << "the second child of the root is a leaf";
  EXPECT_EQ(text_of(shape.cut({2, 3})), "0#1 fed 1");
  EXPECT_EQ(text_of(shape.cut({1, 3})), " fed 1");
  EXPECT_EQ(text_of(shape.cut({7, 0})), " fed 1");
}

// Leaves are not fed, unless a later sibling has children: siblings stay in the order of their ranks.
TEST(TreeShape, leaves_come_last) {
  const TreeShape::Cut cut =
      TreeShape::read(json::parse("[[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 1, 0]]")).cut({64, 64});
  EXPECT_EQ(text_of(cut), "0#1 0#2 1#4 1#5 0#3 2#6 4#7 fed 1 3 5");
}

TEST(TreeShape, every_cut_is_a_tree_of_the_budget) {
  const TreeShape shape = TreeShape::read(json::parse("[[0], [1], [2], [1, 0], [1, 1], [1, 1, 0], [2, 0], [0, 0]]"));
  for (int nodes = 1; nodes <= 10; ++nodes)
    for (int depth = 0; depth <= 4; ++depth) {
      const TreeShape::Cut cut = shape.cut({nodes, depth});
      EXPECT_LE(int(cut.nodes.size()), nodes);
      EXPECT_TRUE(cut.nodes[0].parent == -1 && cut.nodes[0].number == 0) << "the root";
      std::vector<int> last(cut.nodes.size(), -1);  // the rank of each node's last child so far
      int leaves = 0;
      for (int n = 1; n < int(cut.nodes.size()); ++n) {
        const auto [parent, number] = cut.nodes[std::size_t(n)];
        const TreeShape::Node& node = shape.nodes()[std::size_t(number)];
        ASSERT_LT(parent, n);
        ASSERT_LT(parent, cut.fed.back()) << "a parent is fed";
        EXPECT_EQ(cut.nodes[std::size_t(parent)].number, node.parent);
        EXPECT_EQ(node.rank, ++last[std::size_t(parent)]);
        EXPECT_EQ(cut.children[std::size_t(parent)][std::size_t(node.rank)], n);
        EXPECT_LE(node.depth, depth);
        if (n < cut.fed.back()) {
          EXPECT_GE(n, cut.fed[std::size_t(node.depth) - 1]);
          EXPECT_LT(n, cut.fed[std::size_t(node.depth)]);
        } else {
          ++leaves;
        }
      }
      EXPECT_EQ(leaves + cut.fed.back(), int(cut.nodes.size()));
    }
}

TEST(TreeShape, the_largest_trees_are_read) {
  EXPECT_EQ(TreeShape::read({255}).nodes().size(), std::size_t(kMaxNodes));
  EXPECT_EQ(TreeShape::read(json(std::vector<int>(kMaxPath, 1))).nodes().back().depth, kMaxPath);
}

std::string refusal(const std::string& list) {
  return test::sentence_of([&] { (void)TreeShape::read(json::parse(list)); });
}

TEST(TreeShape, what_is_no_shape_is_refused_in_one_sentence) {
  EXPECT_TRUE(says(refusal("[]"), "the shape [] of a draft tree has no node below the root; write", "[4, 2, 1]"));
  EXPECT_TRUE(says(refusal("7"), "is no list of one kind; write"));
  EXPECT_TRUE(says(refusal("[1, [0]]"), "is no list of one kind; write"));
  EXPECT_TRUE(says(refusal("[\"a\"]"), "is no list of one kind; write"));
  EXPECT_TRUE(says(refusal("[[18446744073709551617]]"), "whose ranks are not all integers from 0"));
  EXPECT_TRUE(says(refusal("[[4294967296]]"), "whose ranks are not all integers from 0"));
  for (const char* n : {"0", "-3", "1.5"})
    EXPECT_TRUE(says(refusal("[2, " + std::string(n) + "]"),
                     "gives the nodes of depth 1 " + std::string(n) + " children; give them at least 1"));
  EXPECT_TRUE(says(refusal("[256]"), "has more than 256 nodes, the root included; leave some out"));
  EXPECT_TRUE(says(refusal("[16, 16]"), "has more than 256 nodes"));
  EXPECT_TRUE(says(refusal("[1000000000000000]"), "has more than 256 nodes"));
  EXPECT_TRUE(says(test::sentence_of([] { (void)TreeShape::read(json(std::vector<int>(65, 1))); }),
                   "is 65 levels deep; give it at most 64"));
  EXPECT_TRUE(says(refusal(json::array({std::vector<int>(65, 0)}).dump()), "is 65 levels deep"));
}

TEST(TreeShape, paths_that_are_no_tree_are_refused_by_name) {
  EXPECT_TRUE(says(refusal("[[0], []]"), "lists [], the root"));
  EXPECT_TRUE(says(refusal("[[0], [1, 0]]"), "lists the node [1,0] without its parent [1]; add it"));
  EXPECT_TRUE(says(refusal("[[0], [2]]"), "lists the node [2] without its better sibling [1]; add it"));
  EXPECT_TRUE(says(refusal("[[0], [1], [0]]"), "lists the node [0] twice; leave one out"));
  for (const char* rank : {"-1", "0.5", "\"a\"", "256", "[0]"})
    EXPECT_TRUE(says(refusal("[[" + std::string(rank) + "]]"), "whose ranks are not all integers from 0 to 255"));
  json many = json::array();
  for (int i = 0; i < 256; ++i) many.push_back({i});
  EXPECT_TRUE(says(refusal(many.dump()), "has more than 256 nodes"));
}

TEST(TreeShape, PublishedTreesHaveTheirNodes) {
  std::map<std::string, Budget> whole;
  for (const std::string& name : published_trees()) whole[name] = TreeShape::read(name).whole();
  EXPECT_EQ(whole.size(), 11u);
  EXPECT_EQ(whole.at("eagle_25"), (Budget{26, 5}));
  EXPECT_EQ(whole.at("recycling_80"), (Budget{81, 6}));
  for (const auto& [name, budget] : whole) {
    if (name != "eagle_25" && name != "recycling_80") {
      EXPECT_EQ(budget, (Budget{64, name == "vicuna_33b_stage1" ? 3 : 4})) << name;
    }
  }
  const TreeShape medusa = TreeShape::read("mc_sim_7b_63");
  const auto& nodes = medusa.nodes();
  EXPECT_EQ(nodes[10].rank, 9);    // the root's last child
  EXPECT_EQ(nodes[20].parent, 1);  // ten children of the first, then seven of the second
  EXPECT_EQ(nodes[21].parent, 2);
  EXPECT_EQ(nodes[63].depth, 4);
}

TEST(TreeShape, AnUnknownNameIsRefusedWithTheKnownOnes) {
  EXPECT_TRUE(says(sentence_of([] { TreeShape::read("mc_sim_7b_64"); }), "mc_sim_7b_64", "mc_sim_7b_63", "eagle_25"));
}

}  // namespace
}  // namespace foretoken::test

// recycling: what it remembers of the target's ranks, and the trees it makes of it, by hand.

#include <gtest/gtest.h>

#include "tests/drafters/lookup_by_hand.h"

namespace foretoken::test {
namespace {

using Text = std::vector<Token>;

class RecyclingByHand : public LookupByHand {
 public:
  explicit RecyclingByHand(json options) : LookupByHand(named(options)), ranks_(options.value("k", 8)) {}

  // A tree with these tokens was fed, a root and its children; the target's ranks after each, -1 behind the last.
  void feed(SequenceId id, const Text& tokens, const std::vector<Text>& best) {
    const Sequence s = sequence({tokens[0]}, id);
    DraftTree tree = DraftTree::rooted(device(), tokens[0], int(tokens.size()) - 1);
    for (std::size_t i = 1; i < tokens.size(); ++i) tree.guess(0, tokens[i]);
    const Tensor ranks = Tensor::host({std::int64_t(tokens.size()), ranks_}, DType::i32);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      for (int k = 0; k < ranks_; ++k)
        ranks.row<Token>(std::int64_t(i))[k] = k < int(best[i].size()) ? best[i][std::size_t(k)] : -1;
    Verdict verdict;  // all of them are rejected
    verdict.finish(1);
    const Outcome outcome{&s, &tree, &verdict, ranks};
    drafter().observe({&outcome, 1});
  }

 private:
  static json named(json options) {
    options["name"] = "recycling";
    return options;
  }
  int ranks_;
};

TEST(Recycling, GrowsTheMostProbablePathsOfRanks) {
  RecyclingByHand of(json{{"k", 3}});
  EXPECT_EQ(of.tree({1}, {9, 4}), Nodes{});
  of.feed(7, {1, 2, 3}, {{2, 3, 4}, {5, 6, 7}, {1}});
  // Weights: 2 0.5, 2 5 0.25, 3 0.177 (rank 1), 4 0.096; 3 1 0.088; 2 6 0.088; ...
  EXPECT_EQ(of.tree({1}, {2, 4}), (Nodes{{0, 2}}));
  EXPECT_EQ(of.tree({1}, {5, 4}), (Nodes{{0, 2}, {1, 5}, {0, 3}, {0, 4}}));
  EXPECT_EQ(of.tree({1}, {9, 1}), (Nodes{{0, 2}, {0, 3}, {0, 4}}));
  EXPECT_EQ(of.tree({9, 9, 1}, {3, 4}), (Nodes{{0, 2}, {1, 5}}));
  EXPECT_EQ(of.tree({5}, {9, 4}), Nodes{});  // 5 was guessed, but never fed
  const Nodes all = of.tree({3}, {30, 3});   // where there is no token, others have its place
  EXPECT_EQ(all.front(), (GuessedNode{0, 1}));
  EXPECT_EQ(all.size(), 1u + 3u + 4u);  // 1; 2 3 4; below 2 5 6 7; below 3 1
  // The latest ranks count.
  of.feed(8, {1}, {{6}});
  EXPECT_EQ(of.tree({1}, {9, 4}), (Nodes{{0, 6}}));
}

TEST(Recycling, AShapeIsFilledBreadthFirst) {
  RecyclingByHand of(json{{"k", 3}, {"shape", {2, 1}}});
  of.feed(7, {1, 2, 3}, {{2, 3, 4}, {5, 6, 7}, {1}});
  EXPECT_EQ(of.tree({1}, {9, 4}), (Nodes{{0, 2}, {0, 3}, {1, 5}, {2, 1}}));
  EXPECT_EQ(of.tree({1}, {4, 4}), (Nodes{{0, 2}, {0, 3}, {1, 5}}));
  EXPECT_EQ(of.tree({1}, {9, 1}), (Nodes{{0, 2}, {0, 3}}));
  RecyclingByHand paper(json{{"shape", "recycling_80"}});
  paper.feed(7, {1}, {{1, 1, 1, 1, 1, 1, 1, 1}});
  EXPECT_EQ(paper.tree({1}, {256, 64}).size(), 80u);
}

TEST(Recycling, EachRequestHasItsOwnWhereItIsAskedFor) {
  RecyclingByHand of(json{{"k", 2}, {"index", "request"}});
  of.feed(7, {1}, {{2, 3}});
  EXPECT_EQ(of.tree({1}, {9, 1}), Nodes{});
  EXPECT_EQ(of.tree({1}, {9, 1}, 7), (Nodes{{0, 2}, {0, 3}}));
  Sequence s = RecyclingByHand::sequence({1}, 7);
  of.drafter().forget(s);  // preempted
  EXPECT_EQ(of.tree({1}, {9, 1}, 7), (Nodes{{0, 2}, {0, 3}}));
  s.finish = Finish::length;
  of.drafter().forget(s);
  EXPECT_EQ(of.tree({1}, {9, 1}, 7), Nodes{});
}

TEST(Recycling, OptionsThatContradictOneAnotherAreRefused) {
  const auto refused = [](const json& options, const char* why) {
    return says(sentence_of([&] { RecyclingByHand of(options); }), why);
  };
  EXPECT_TRUE(refused({{"k", 2}, {"shape", {3}}}, "has nodes of rank 2 (counted from 0), but 'k' is 2; raise 'k'"));
  EXPECT_TRUE(refused({{"k", 17}}, "1 to 16"));
  EXPECT_TRUE(refused({{"index", "requests"}}, "did you mean 'request'?"));
  EXPECT_TRUE(refused({{"shape", "recycling"}}, "unknown shape of a draft tree 'recycling'"));
}

}  // namespace
}  // namespace foretoken::test

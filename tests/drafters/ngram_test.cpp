// ngram: one continuation as it always was, and trees of several by hand.
#include <random>

#include <gtest/gtest.h>

#include "tests/drafters/lookup_by_hand.h"

namespace foretoken::test {
namespace {

using Text = std::vector<Token>;

json ngram_of(int longest, int shortest, int candidates = 1) {
  return {{"name", "ngram"}, {"longest", longest}, {"shortest", shortest}, {"candidates", candidates}};
}

// What follows the latest earlier occurrence of the last n tokens, for the greatest n that has one, word for word.
Nodes latest_continuation(const Text& text, int longest, int shortest, int most) {
  const int size = int(text.size());
  for (int n = std::min(longest, size - 1); n >= shortest; --n)
    for (int at = size - n - 1; at >= 0; --at) {
      if (!std::equal(text.end() - n, text.end(), text.begin() + at)) continue;
      Nodes chain;
      for (int i = at + n; i < size && int(chain.size()) < most; ++i)
        chain.push_back({int(chain.size()), text[std::size_t(i)]});
      return chain;
    }
  return {};
}

TEST(Ngram, OneCandidateIsTheLatestOccurrenceOfTheLongestMatch) {
  std::mt19937 random(1);
  int nodes = 0;
  for (int i = 0; i < 600; ++i) {
    Text text;
    const std::uint32_t length = 1 + random() % 120, alphabet = 2 + random() % 40;
    while (text.size() < length) text.push_back(Token(random() % alphabet));
    const int shortest = 1 + i % 3, longest = shortest + i % 4, depth = 1 + i % 7;
    const Nodes expected = latest_continuation(text, longest, shortest, std::min(depth, 5));
    EXPECT_EQ(LookupByHand(ngram_of(longest, shortest)).tree(text, {6, depth}), expected);
    nodes += int(expected.size());
  }
  EXPECT_GT(nodes, 600);
}

TEST(Ngram, CandidatesAreBranchesOfATree) {
  // 7 8 was followed by 1 2 3, by 1 2 4 and by 5 6 (the latest); 9 7 8 by 1 2 3.
  const Text text{9, 7, 8, 1, 2, 3, 7, 8, 1, 2, 4, 7, 8, 5, 6, 9, 7, 8};
  const Budget large{20, 3};
  EXPECT_EQ(LookupByHand(ngram_of(3, 2, 1)).tree(text, large), (Nodes{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(LookupByHand(ngram_of(3, 2, 2)).tree(text, large), (Nodes{{0, 1}, {1, 2}, {2, 3}, {0, 5}, {4, 6}, {5, 9}}));
  EXPECT_EQ(LookupByHand(ngram_of(3, 2, 9)).tree(text, large),
            (Nodes{{0, 1}, {1, 2}, {2, 3}, {0, 5}, {4, 6}, {5, 9}, {2, 4}}));
  EXPECT_EQ(LookupByHand(ngram_of(2, 2, 2)).tree(text, large), (Nodes{{0, 5}, {1, 6}, {2, 9}, {0, 1}, {4, 2}, {5, 4}}));
  // What the budget has no more nodes for is left out.
  EXPECT_EQ(LookupByHand(ngram_of(3, 2, 9)).tree(text, {6, 3}), (Nodes{{0, 1}, {1, 2}, {2, 3}, {0, 5}, {4, 6}}));
  EXPECT_EQ(LookupByHand(ngram_of(3, 2, 9)).tree(text, {6, 1}), (Nodes{{0, 1}, {0, 5}}));
}

// A continuation that another one begins with is none of its own.
TEST(Ngram, OnlyDifferentContinuationsCount) {
  const Text text{1, 2, 9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2};
  EXPECT_EQ(LookupByHand(ngram_of(2, 2, 2)).tree(text, {9, 1}), (Nodes{{0, 3}, {0, 9}}));
}

// Blocks of tokens are compared at once.
TEST(Ngram, CopiesAreFoundAtAnyDistance) {
  for (int distance = 3; distance < 100; ++distance) {
    Text text{50, 51, 52, 53};
    for (int i = 0; i < distance; ++i) text.push_back(Token(i % 40));
    text.insert(text.end(), {50, 51, 52});
    EXPECT_EQ(LookupByHand(ngram_of(3, 3)).tree(text, {2, 1}), (Nodes{{0, 53}})) << distance;
  }
}

}  // namespace
}  // namespace foretoken::test

// Counts of patterns beside naive counting over all occurrences, while outputs come and go.
#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "drafters/shared_outputs.h"

namespace foretoken::test {
namespace {

using Text = std::vector<Token>;

// How often `pattern` occurs, and each token behind it, within the first `depth` tokens of the suffixes of some texts.
struct Naive {
  std::uint32_t count = 0, followed = 0;
  std::map<Token, std::uint32_t> next;
};

Naive counted(const std::deque<Text>& texts, std::span<const Token> pattern, int depth) {
  Naive found;
  for (const Text& t : texts)
    for (std::size_t at = 0; at + pattern.size() <= t.size(); ++at) {
      if (!std::equal(pattern.begin(), pattern.end(), t.begin() + std::ptrdiff_t(at))) continue;
      ++found.count;
      if (int(pattern.size()) == depth || at + pattern.size() == t.size()) continue;
      ++found.followed, ++found.next[t[at + pattern.size()]];
    }
  return found;
}

void expect_counts(const SuffixTree& tree, const std::deque<Text>& texts, const Text& pattern) {
  const Naive naive = counted(texts, pattern, tree.depth());
  const auto place = tree.find(pattern);
  ASSERT_EQ(place.has_value(), pattern.empty() || naive.count > 0);
  if (!place || pattern.empty()) return;  // the root counts the suffixes alone
  ASSERT_EQ(tree.count(*place), naive.count);
  ASSERT_EQ(tree.followed(*place), naive.followed);
  std::vector<SuffixTree::Child> children;
  tree.children(*place, 1 << 20, 0, children);
  ASSERT_EQ(children.size(), naive.next.size());
  for (std::size_t i = 0; i < children.size(); ++i) {
    ASSERT_EQ(children[i].count, naive.next.at(children[i].token));
    ASSERT_LE(children[i].count, children[i > 0 ? i - 1 : 0].count);
    ASSERT_EQ(tree.child(*place, children[i].token)->node, children[i].place.node);
  }
}

// Every pattern of the texts, and some that do not occur.
void expect_all_counts(const SuffixTree& tree, const std::deque<Text>& texts, int alphabet) {
  std::set<Text> patterns;
  for (const Text& t : texts)
    for (std::size_t at = 0; at < t.size(); ++at)
      for (int n = 1; n <= tree.depth() && at + std::size_t(n) <= t.size(); ++n)
        patterns.insert(Text(t.begin() + std::ptrdiff_t(at), t.begin() + std::ptrdiff_t(at) + n));
  for (Token a = 0; a < alphabet; ++a)
    for (Token b = 0; b < alphabet; ++b) patterns.insert({a, b}), patterns.insert({a, b, a, a, b});
  for (const Text& p : patterns)
    if (int(p.size()) <= tree.depth()) expect_counts(tree, texts, p);
}

Text random_text(std::mt19937& random, int length, int alphabet) {
  Text t;
  for (int i = 0; i < length; ++i) t.push_back(Token(random() % std::uint32_t(alphabet)));
  return t;
}

struct Outputs : testing::TestWithParam<std::tuple<int, int>> {};  // alphabet, depth

TEST_P(Outputs, CountsAreThoseOfAllOccurrencesWhileOutputsComeAndGo) {
  const auto [alphabet, depth] = GetParam();
  std::mt19937 random(7);
  constexpr int kMost = 60;
  SharedOutputs index(depth, kMost);
  std::deque<Text> held;
  int held_tokens = 0, evicted = 0;
  for (int i = 0; i < 60; ++i) {
    const int length = i % 20 == 19 ? kMost + 3 : i % 17;  // empty ones and one longer than the bound too
    Text t = random_text(random, length, alphabet);
    index.add(t);
    if (length > kMost) evicted += 3, t.erase(t.begin(), t.begin() + 3);
    for (; held_tokens + int(t.size()) > kMost; held.pop_front())
      held_tokens -= int(held.front().size()), evicted += int(held.front().size());
    if (!t.empty()) held.push_back(t), held_tokens += int(t.size());
    const SharedOutputs::Books books = index.books();
    ASSERT_EQ(books.outputs, std::int64_t(held.size()));
    ASSERT_EQ(books.tokens, held_tokens);
    ASSERT_EQ(books.evicted, evicted);
    index.read([&](const SuffixTree& tree, const auto&) { expect_all_counts(tree, held, alphabet); });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(evicted, 300);
}

INSTANTIATE_TEST_SUITE_P(Random, Outputs, testing::Combine(testing::Values(1, 2, 3, 40), testing::Values(1, 4, 9)));

TEST(SuffixTree, ByHand) {
  SharedOutputs index(4, 100);
  index.add(Text{1, 2, 3, 1, 2, 4});
  index.add(Text{5, 1, 2, 4});
  index.read([](const SuffixTree& tree, const auto&) {
    const auto place = *tree.find(Text{1, 2});
    EXPECT_EQ(tree.count(place), 3u);
    std::vector<SuffixTree::Child> children;
    tree.children(place, 8, 0, children);
    ASSERT_EQ(children.size(), 2u);
    EXPECT_EQ(children[0].token, 4);
    EXPECT_EQ(children[0].count, 2u);
    EXPECT_EQ(children[0].latest, 9u);
    EXPECT_EQ(children[1].token, 3);
    EXPECT_EQ(children[1].count, 1u);
    children.clear();
    tree.children(place, 1, 0, children);
    EXPECT_EQ(children.size(), 1u);
    children.clear();
    tree.children(place, 8, 2, children);
    EXPECT_EQ(children.size(), 1u);
    EXPECT_FALSE(tree.find(Text{4, 5}));  // no pattern reaches from one output into the next
    EXPECT_EQ(tree.followed(*tree.find(Text{2, 4})), 0u);
  });
}

// The bound of README: texts of few repeats and of many.
TEST(SuffixTree, MemoryIsBoundedHoweverManyOutputsCome) {
  for (const int alphabet : {2, 50, 30000}) {
    constexpr std::int64_t kMost = 4000;
    SharedOutputs index(64, kMost);
    std::mt19937 random(11);
    std::int64_t most = 0;
    for (int i = 0; i < 300; ++i) {
      index.add(random_text(random, 100, alphabet));
      most = std::max(most, index.books().bytes);
    }
    EXPECT_EQ(index.books().tokens, kMost);
    EXPECT_LT(most, 256 * kMost) << alphabet;
  }
}

TEST(SuffixTree, ThreadsMayShareIt) {
  SharedOutputs index(8, 500);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 300; ++i) {
        const Text text = random_text(random, 20, 3);
        index.add(text);
        index.read([&](const SuffixTree& tree, const auto&) {
          std::uint32_t sum = 0;
          std::vector<SuffixTree::Child> children;
          tree.children({}, 8, 0, children);
          for (const auto& c : children) sum += c.count;
          EXPECT_EQ(sum, tree.count({}));
        });
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(index.books().tokens, 500);
  EXPECT_EQ(index.books().evicted, 4 * 300 * 20 - 500);
}

}  // namespace
}  // namespace foretoken::test

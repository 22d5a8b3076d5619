// suffix: its trees of guesses by hand and beside naive counting, and what its index of past outputs keeps.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "drafters/likely_paths.h"
#include "drafters/shared_outputs.h"
#include "tests/drafters/lookup_by_hand.h"

namespace foretoken::test {
namespace {

using Text = std::vector<Token>;

// The probabilities of all nodes up to `depth` levels below the last `match` tokens of a text, by counting. `own`: in
// the text itself, else in `others`.
struct NaivePaths {
  std::vector<Text> texts;
  Text text;
  bool own;

  std::vector<std::pair<Token, double>> next(const Text& pattern) const {
    std::map<Token, double> counts;
    double total = 0;
    for (const Text& t : texts)
      for (std::size_t at = 0; at + pattern.size() < t.size(); ++at)
        if (std::equal(pattern.begin(), pattern.end(), t.begin() + std::ptrdiff_t(at)))
          ++counts[t[at + pattern.size()]], ++total;
    std::vector<std::pair<Token, double>> all;
    for (const auto& [token, count] : counts) all.emplace_back(token, count / total);
    return all;
  }
  void collect(const Text& pattern, double above, double least, float confidence, int depth,
               std::vector<double>& to) const {
    if (depth == 0) return;
    const auto all = next(pattern);
    const auto largest = std::ranges::max_element(all, {}, &std::pair<Token, double>::second);
    if (all.empty() || largest->second < double(confidence) - 1e-12) return;
    for (const auto& [token, p] : all) {
      if (above * p < least) continue;
      to.push_back(above * p);
      Text longer = pattern;
      longer.push_back(token);
      collect(longer, above * p, least, confidence, depth - 1, to);
    }
  }
  bool occurs(const Text& pattern) const {
    for (const Text& t : texts)
      if (const auto found = std::search(t.begin(), own ? t.end() - 1 : t.end(), pattern.begin(), pattern.end());
          found != (own ? t.end() - 1 : t.end()))
        return true;
    return false;
  }
  Text last(int n) const { return {text.end() - n, text.end()}; }
  // The sum of the most probable nodes, the best of all matches.
  double best_score(int longest, const PathLimits& limits, const Budget& budget) const {
    double best = 0;
    for (int match = std::min(longest, int(text.size())); match > 0; --match) {
      if (!occurs(last(match))) continue;
      std::vector<double> all;
      collect(last(match), 1, limits.least, budget.confidence, budget.depth, all);
      std::ranges::sort(all, std::greater());
      const int most = std::min({budget.nodes - 1, int(limits.factor * match), int(all.size())});
      double score = 0;
      for (int i = 0; i < most; ++i) score += all[std::size_t(i)];
      best = std::max(best, score);
    }
    return best;
  }
  // What the guesses promise by counting, if they are nodes below some match.
  double score_of(const Guesses& guesses, int match) const {
    double score = 0;
    std::vector<std::pair<Text, double>> paths;
    for (const Guesses::Node& node : guesses.nodes) {
      Text path = node.parent < 0 ? last(match) : paths[std::size_t(node.parent)].first;
      const auto all = next(path);
      const auto found = std::ranges::find(all, node.token, &std::pair<Token, double>::first);
      if (found == all.end()) return -1;
      const double p = (node.parent < 0 ? 1 : paths[std::size_t(node.parent)].second) * found->second;
      path.push_back(node.token);
      paths.emplace_back(path, p), score += p;
    }
    return score;
  }
};

struct RandomTexts : testing::TestWithParam<int> {
  std::mt19937 random{5};
  Text text(int length) {  // of runs that come again, so that there are long matches
    Text t;
    while (int(t.size()) < length) {
      if (t.size() > 4 && random() % 4 == 0) {
        const std::size_t at = random() % (t.size() - 2), n = 2 + random() % 9;
        for (std::size_t i = 0; i < n; ++i) t.push_back(t[at + i % (t.size() - at)]);
      } else {
        t.push_back(Token(random() % std::uint32_t(GetParam())));
      }
    }
    t.resize(std::size_t(length));
    return t;
  }
};

// The best sum of probabilities, of guesses that are what was counted.
void expect_best(const Guesses& guesses, const NaivePaths& naive, int longest, const PathLimits& limits,
                 const Budget& budget) {
  EXPECT_NEAR(guesses.score, naive.best_score(longest, limits, budget), 1e-9);
  bool any = guesses.nodes.empty();
  for (int match = 1; match <= std::min(longest, int(naive.text.size())); ++match)
    any |= int(guesses.nodes.size()) <= int(limits.factor * match) &&
           std::abs(naive.score_of(guesses, match) - guesses.score) < 1e-9;
  EXPECT_TRUE(any);
  EXPECT_LT(int(guesses.nodes.size()), budget.nodes);
}

struct Limited {
  int longest;
  PathLimits limits;
  Budget budget;
};
const std::vector<Limited> kLimits{{3, {1, 0.1}, {9, 4}},
                                   {5, {4, 0}, {13, 5}},
                                   {2, {8, 0.02}, {17, 3}},
                                   {8, {1.5, 0.2}, {5, 4}},
                                   {4, {4, 0}, {13, 5, 0.6f}}};

TEST_P(RandomTexts, GuessesOfTheOwnTextAreTheMostProbableByCounting) {
  int guessed = 0;
  for (int length = 1; length < 150; length += length < 60 || length > 70 ? 7 : 1)
    for (const Limited& l : kLimits) {
      const Text t = text(length);
      SuffixTree tree(Occurrences::kMostTail);
      tree.append(t);
      int counted = 0;
      for (; counted + tree.depth() <= length; ++counted) tree.insert(SuffixTree::Position(counted), tree.depth());
      const Guesses guesses = likely_paths({tree, t, counted, l.longest}, l.limits, l.budget);
      expect_best(guesses, {{t}, t, true}, l.longest, l.limits, l.budget);
      guessed += int(guesses.nodes.size());
    }
  EXPECT_GT(guessed, 50);
}

TEST_P(RandomTexts, GuessesOfPastOutputsAreTheMostProbableByCounting) {
  int guessed = 0;
  for (int i = 0; i < 40; ++i) {
    const Limited& l = kLimits[std::size_t(i) % kLimits.size()];
    SharedOutputs index(Occurrences::kMostTail, 10000);
    std::vector<Text> outputs;
    for (int k = 0; k < 1 + i % 5; ++k) outputs.push_back(text(1 + int(random() % 90))), index.add(outputs.back());
    Text t = text(12);
    t.insert(t.end(), outputs[0].begin(), outputs[0].begin() + std::ptrdiff_t(outputs[0].size() / 2));
    index.read([&](const SuffixTree& tree, const auto&) {
      const Guesses guesses = likely_paths({tree, t, int(t.size()), l.longest}, l.limits, l.budget);
      expect_best(guesses, {outputs, t, false}, l.longest, l.limits, l.budget);
      guessed += int(guesses.nodes.size());
    });
  }
  EXPECT_GT(guessed, 50);
}

INSTANTIATE_TEST_SUITE_P(Alphabets, RandomTexts, testing::Values(2, 4, 12));

// Drafted as in an engine.

TEST(Suffix, GuessesByHand) {
  LookupByHand of({{"name", "suffix"}, {"index", "request"}, {"factor", 2}});
  // Behind 7 8 came 1 twice and 2 once; behind 7 8 1 came 3 and 4, of which 4 is the later.
  const Text text{7, 8, 1, 3, 7, 8, 2, 5, 7, 8, 1, 4, 6, 7, 8};
  EXPECT_EQ(of.tree(text, {5, 4}), (Nodes{{0, 1}, {0, 2}, {1, 4}, {1, 3}}));
  EXPECT_EQ(of.tree(text, {3, 4}), (Nodes{{0, 1}, {0, 2}}));
  EXPECT_EQ(of.tree(text, {5, 1}), (Nodes{{0, 1}, {0, 2}}));
  EXPECT_EQ(of.tree(text, {1, 0}), Nodes{});
  // Two thirds are not enough.
  EXPECT_EQ(of.tree(text, {5, 4, 0.7f}), Nodes{});
  // Below 1 both tokens have half.
  EXPECT_EQ(of.tree(text, {5, 4, 0.6f}), (Nodes{{0, 1}, {0, 2}, {2, 5}, {3, 7}}));
  // Nothing came before.
  EXPECT_EQ(of.tree({1, 2, 3}, {5, 4}), Nodes{});
  EXPECT_EQ(of.tree({1}, {5, 4}), Nodes{});
}

TEST(Suffix, TheFactorBoundsGuessesByTheMatchAndLeastTheirProbability) {
  const Text text{1, 2, 3, 4, 5, 6, 7, 9, 2, 3};  // the match is 2 3
  EXPECT_EQ(LookupByHand({{"name", "suffix"}, {"factor", 1}}).tree(text, {9, 8}), (Nodes{{0, 4}, {1, 5}}));
  EXPECT_EQ(LookupByHand({{"name", "suffix"}, {"factor", 1.5}}).tree(text, {9, 8}), (Nodes{{0, 4}, {1, 5}, {2, 6}}));
  EXPECT_EQ(LookupByHand({{"name", "suffix"}, {"factor", 1.5}, {"longest", 1}}).tree(text, {9, 8}), (Nodes{{0, 4}}));
  const Text fork{1, 2, 1, 3, 1, 4, 1, 4, 1, 4, 1};  // behind 1: 4 three times, 2 and 3 once
  EXPECT_EQ(LookupByHand({{"name", "suffix"}, {"factor", 4}, {"longest", 1}, {"least", 0.61}}).tree(fork, {9, 1}),
            Nodes{});
  EXPECT_EQ(LookupByHand({{"name", "suffix"}, {"factor", 4}, {"longest", 1}, {"least", 0.6}}).tree(fork, {9, 1}),
            (Nodes{{0, 4}}));
  EXPECT_EQ(LookupByHand({{"name", "suffix"}, {"factor", 4}, {"longest", 1}, {"least", 0.2}}).tree(fork, {9, 1}),
            (Nodes{{0, 4}, {0, 3}, {0, 2}}));
}

// A sequence that grows has what one of the same tokens has that is new.
TEST(Suffix, ATextIsFollowedAsItGrows) {
  std::mt19937 random(3);
  LookupByHand grows({{"name", "suffix"}, {"index", "request"}, {"factor", 3}});
  Text text{1, 2};
  int nodes = 0;
  while (text.size() < 300) {
    for (std::uint32_t n = random() % 5; n > 0; --n) text.push_back(Token(random() % 3));
    const Nodes tree = grows.tree(text, {12, 5}, 77);
    EXPECT_EQ(tree, LookupByHand({{"name", "suffix"}, {"index", "request"}, {"factor", 3}}).tree(text, {12, 5}));
    nodes += int(tree.size());
  }
  EXPECT_GT(nodes, 300);
}

const Text kOutput{1, 2, 3, 4, 5, 6};

TEST(Suffix, OutputsOfRequestsThatEndedAreShared) {
  LookupByHand of({{"name", "suffix"}, {"factor", 1}});
  EXPECT_EQ(of.tree({9, 2, 3}, {9, 8}), Nodes{});
  of.finish({8, 8, 8, 1, 2, 3, 4, 5, 6}, 3);
  EXPECT_EQ(of.tree({9, 2, 3}, {9, 8}), (Nodes{{0, 4}, {1, 5}}));
  EXPECT_EQ(of.tree({7, 8}, {9, 8}), Nodes{});  // prompts are not
  of.finish({8, 3, 7}, 1, Finish::failed);
  of.finish({8, 3, 7, 7, 7}, 1, Finish::running);  // preempted
  EXPECT_EQ(of.tree({9, 2, 3}, {9, 8}), (Nodes{{0, 4}, {1, 5}}));
  // Its own tokens promise more: both follow 2 3.
  EXPECT_EQ(of.tree({0, 2, 3, 7, 8, 0, 2, 3}, {9, 8}), (Nodes{{0, 7}, {1, 8}, {2, 0}}));
  LookupByHand alone({{"name", "suffix"}, {"index", "request"}});
  alone.finish({8, 8, 8, 1, 2, 3, 4, 5, 6}, 3);
  EXPECT_EQ(alone.tree({9, 2, 3}, {9, 8}), Nodes{});
}

TEST(Suffix, AFullIndexEvictsTheOldestOutputsAndSaysSo) {
  LookupByHand of({{"name", "suffix"}, {"tokens", 10}});
  of.finish(kOutput, 0);
  EXPECT_EQ(of.notice(), "");
  of.finish({7, 8, 9, 10}, 0);
  EXPECT_EQ(of.notice(), "");
  EXPECT_EQ(of.tree({2, 3}, {9, 8}), (Nodes{{0, 4}, {1, 5}}));
  of.finish({11}, 0);
  EXPECT_EQ(of.notice(),
            "the drafter 'suffix' evicted 6 tokens of the oldest outputs, since its index was full; raise 'tokens' to "
            "keep more");
  EXPECT_EQ(of.tree({2, 3}, {9, 8}), Nodes{});
  EXPECT_EQ(of.tree({7, 8}, {9, 8}), (Nodes{{0, 9}, {1, 10}}));
}

// Else a second run with these draws would accept, of two equally probable tokens, the one that they had chosen.
TEST(Suffix, NoGuessFollowsFromTheDrawsThatJudgeIt) {
  LookupByHand of({{"name", "suffix"}, {"tokens", 6}});
  const auto guesses = [&](std::uint64_t seed, std::uint64_t stream, float temperature) {
    Sequence s = LookupByHand::sequence({2, 3}, 77);
    s.sampling.temperature = temperature, s.sampling.seed = seed, s.stream = stream;
    const Nodes all = LookupByHand::nodes(of.draft(s, {9, 8}));
    s.finish = Finish::failed, of.drafter().forget(s);
    return int(all.size());
  };
  const auto finish = [&](float temperature) {
    Sequence s = LookupByHand::sequence(kOutput, 78);
    s.sampling.temperature = temperature, s.sampling.seed = 4, s.stream = 5, s.finish = Finish::length;
    of.drafter().forget(s);
  };
  finish(1);
  EXPECT_EQ(of.notice(), "");
  EXPECT_EQ(guesses(4, 5, 1), 0);
  EXPECT_TRUE(says(of.notice(), "used no past outputs in 1 rounds", "the same seed and stream"));
  EXPECT_EQ(guesses(4, 6, 1), 2);
  EXPECT_EQ(guesses(3, 5, 1), 2);
  EXPECT_EQ(guesses(4, 5, 0), 2) << "draws change nothing";
  finish(0);  // evicts the other one
  EXPECT_EQ(guesses(4, 5, 1), 2);
}

TEST(Suffix, OptionsThatContradictOneAnotherAreRefused) {
  const auto refused = [](json options, const char* why) {
    options["name"] = "suffix";
    return says(sentence_of([&] { LookupByHand of(options); }), why);
  };
  EXPECT_TRUE(refused({{"index", "shard"}}, "unknown index of the drafter 'suffix', 'shard' (did you mean 'shared'?)"));
  EXPECT_TRUE(refused({{"tokens", 0}}, "option 'tokens' of drafter 'suffix' must be integer"));
  EXPECT_TRUE(refused({{"longest", 33}}, "1 to 32"));
  EXPECT_TRUE(refused({{"factor", 0}}, "above 0"));
  EXPECT_TRUE(refused({{"least", 1.5}}, "0 to 1"));
}

}  // namespace
}  // namespace foretoken::test

// lookahead: the window, the pool of n-grams and the guesses, round by round beside a slow account of the same.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "drafters/drafters.h"
#include "framework/cache/page_pool.h"
#include "framework/components/host.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;
using Tokens = std::vector<Token>;
using Place = std::pair<int, int>;  // column and level

// A tree in plain numbers: the window's tokens, by place, and the nodes that hold them; the guesses as paths.
struct Drafted {
  std::map<Place, Token> window;
  std::map<Place, int> nodes;
  std::vector<Tokens> guesses;  // to leaves
  int depth = 0;
};

// Column 0 begins at the root. The lowest level is the chain that goes on from the root; what hangs below one of its
// nodes besides is that column's.
struct Reader {
  explicit Reader(const DraftTree& t) : tree(t) {}
  int parent(int n) const { return *tree.parents.row<std::int32_t>(n); }
  Token token(int n) const { return *tree.known.row<Token>(n); }
  std::vector<int> children(int node, bool aside) const {
    std::vector<int> all;
    for (int n = 1; n < tree.nodes; ++n)
      if (parent(n) == node && tree.aside(n) == aside) all.push_back(n);
    return all;
  }
  // `columns` as the test expects them, `height` levels.
  Drafted read(int columns, int height) const {
    Drafted d;
    int lowest = 0;
    for (int c = 0; c < columns; ++c) {
      std::vector<int> below = children(lowest, true);  // its column, then the next one
      const int next = c + 1 < columns && !below.empty() ? below.back() : -1;
      if (next >= 0) below.pop_back();
      d.window[{c, 0}] = token(lowest), d.nodes[{c, 0}] = lowest;
      EXPECT_EQ(int(below.size()), height > 1) << "column " << c;
      int node = lowest;
      for (int j = 1; j < height; ++j) {
        const std::vector<int> up = j == 1 ? below : children(node, true);
        if (up.size() != 1) return ADD_FAILURE() << "column " << c << " ends at level " << j, d;
        node = up.front(), d.window[{c, j}] = token(node), d.nodes[{c, j}] = node;
      }
      if (next >= 0) lowest = next;
    }
    for (int n = 1; n < tree.nodes; ++n) {
      int levels = 0;
      Tokens path;
      for (int m = n; m > 0; m = parent(m)) path.insert(path.begin(), token(m)), ++levels;
      d.depth = std::max(d.depth, levels);
      if (!tree.aside(n) && children(n, false).empty()) d.guesses.push_back(path);
    }
    return d;
  }
  const DraftTree& tree;
};

// What this target says after a text: it depends on its last two tokens.
Token best_after(const Tokens& text) {
  const int n = int(text.size());
  return Token((text[std::size_t(n - 1)] * 5 + (n > 1 ? text[std::size_t(n - 2)] : 0) * 3 + 1) % 11);
}

struct Lookahead : ::testing::Test {
  std::unique_ptr<Backend> backend = make_reference_backend();
  ModelInfo target;
  Registries registries;
  std::unique_ptr<Drafter> drafter;
  Sequence s;
  std::vector<DraftTree> trees;  // of the last round
  Tensor ranks;

  Lookahead() {
    register_drafters(registries);
    target.name = "t", target.vocab = 11;
    s.id = 3, s.tokens = {1, 2, 3, 4}, s.prompt_length = 4;
  }
  void make(int window, int ngram, int guesses) {
    PagePool pool(*backend, 64, 1);
    Host host(*backend, pool, target, {}, false);
    drafter = registries.drafters.make(
        {{"name", "lookahead"}, {"window", window}, {"ngram", ngram}, {"guesses", guesses}, {"cut", true}}, host);
  }
  // A round: the tree, and what the target says after each node.
  const DraftTree& draft(const Budget& budget) {
    DraftRequest request;
    request.sequence = &s, request.budget = budget;
    trees = drafter->draft({&request, 1});
    const DraftTree& tree = trees.front();
    expect_tree(tree, {s.last(), budget, target.vocab, std::vector{Drawn::certain}, std::vector{Drawn::certain}}, "it");
    ranks = Tensor::host({tree.nodes, 1}, DType::i32);
    for (int n = 0; n < tree.nodes; ++n) {
      Tokens path;
      for (int m = n; m > 0; m = *tree.parents.row<std::int32_t>(m))
        path.insert(path.begin(), *tree.known.row<Token>(m));
      path.insert(path.begin(), s.tokens.begin(), s.tokens.end());
      *ranks.row<Token>(n) = best_after(path);
    }
    return tree;
  }
  // The target accepts the guesses that it says itself; the outcome has no tokens aside.
  int verify() {
    const DraftTree& tree = trees.front();
    Verdict v;
    for (int node = 0, next = 1; next < tree.nodes; ++next)
      if (*tree.parents.row<std::int32_t>(next) == node && !tree.aside(next) &&
          *tree.known.row<Token>(next) == *ranks.row<Token>(node))
        v.follow(next, *tree.known.row<Token>(next)), node = next;
    v.finish(*ranks.row<Token>(v.length > 0 ? v.path[v.length - 1] : 0));
    s.tokens.insert(s.tokens.end(), v.tokens, v.tokens + v.length + 1);
    for (int n = 1; n < tree.nodes; ++n)
      if (tree.aside(n)) *tree.known.row<Token>(n) = -1;
    const Outcome o{&s, &tree, &v, ranks};
    drafter->observe({&o, 1});
    return v.length;
  }
};

// The guesses are the newest n-grams, as many as may be, that begin with the last token; those of them that begin alike
// share their nodes.
void expect_guesses(const std::vector<Tokens>& seen, Token last, int most, const Drafted& d) {
  std::set<Tokens> want;
  for (auto ngram = seen.rbegin(); ngram != seen.rend() && int(want.size()) < most; ++ngram)
    if (ngram->front() == last) want.insert(Tokens(ngram->begin() + 1, ngram->end()));
  ASSERT_EQ(std::set<Tokens>(d.guesses.begin(), d.guesses.end()), want);
  ASSERT_EQ(d.guesses.size(), want.size());
}

TEST_F(Lookahead, Improves_its_window_and_guesses_what_it_held) {
  int accepted = 0, guessed = 0;
  for (const auto& [window, ngram, guesses] : {std::array{4, 4, 3}, {2, 2, 1}, {5, 3, 2}, {3, 6, 9}}) {
    SCOPED_TRACE(testing::Message() << window << " " << ngram << " " << guesses);
    make(window, ngram, guesses);
    s.tokens = {1, 2, 3, 4};
    std::vector<Tokens> seen;
    Drafted before;
    std::map<Place, Token> said;  // after the nodes of the round before
    for (int round = 0; round < 40; ++round) {
      const int height = std::min(round + 1, ngram - 1), columns = window + ngram - 1 - height;
      const DraftTree& tree = draft({(window + guesses) * (ngram - 1), window + ngram - 3});
      const Drafted d = Reader(tree).read(columns, height);
      int aside = 0;
      for (int n = 1; n < tree.nodes; ++n) aside += tree.aside(n);
      ASSERT_EQ(aside, columns * height - 1);
      expect_guesses(seen, s.last(), guesses, d);
      guessed += int(d.guesses.size());
      // By places behind the last token, which all move by one: what stood at level j + 1 is now at level j once all
      // levels are there, and while they are not, it keeps its level in the column before.
      for (const auto& [place, token] : d.window) {
        const auto [c, j] = place;
        if (c == 0 && j == 0) continue;
        if (round == 0) {
          ASSERT_TRUE(std::ranges::find(s.tokens, token) != s.tokens.end()) << "of the prompt";
        } else if (round + 1 <= ngram - 1) {
          ASSERT_EQ(token, j == height - 1 ? said.at({c + 1, j - 1}) : before.window.at({c + 1, j}));
        } else {
          ASSERT_EQ(token, j == height - 1 ? said.at({c, j}) : before.window.at({c, j + 1}));
        }
      }
      said.clear();
      for (const auto& [place, node] : d.nodes) said[place] = *ranks.row<Token>(node);
      for (int c = 0; c < columns && height == ngram - 1; ++c) {
        Tokens& of = seen.emplace_back();
        for (int j = 0; j < height; ++j) of.push_back(d.window.at({c, j}));
        of.push_back(said.at({c, height - 1}));
      }
      before = d;
      accepted += verify();
    }
    s.finish = Finish::length;
    drafter->forget(s);
    s.finish = Finish::running;
  }
  EXPECT_GT(accepted, 20);
  EXPECT_GT(guessed, 100);
}

TEST_F(Lookahead, Keeps_within_any_budget_and_goes_on_with_older_guesses) {
  make(5, 4, 3);
  int cut = 0, whole = 0;
  for (int round = 0; round < 200; ++round) {
    const Budget budget{1 + (round * 7) % 26, 1 + (round * 5) % 7};
    const int nodes = draft(budget).nodes;  // draft() compares with the budget
    (nodes < 16 ? cut : whole) += nodes > 1;
    verify();
  }
  EXPECT_GT(cut, 20);
  EXPECT_GT(whole, 20);
}

TEST_F(Lookahead, A_column_without_a_place_keeps_the_older_guess_of_its_position) {
  make(4, 2, 1);  // one level
  draft({10, 10});
  const Token after_one = *ranks.row<Token>(1), after_three = *ranks.row<Token>(3);
  verify();
  const Drafted two_columns = Reader(draft({2, 10})).read(2, 1);
  EXPECT_EQ(two_columns.window.at({1, 0}), after_one);
  const Token said = *ranks.row<Token>(1);
  verify();
  const DraftTree& tree = draft({10, 10});
  ASSERT_GE(tree.nodes, 4);  // a guess may come first
  const auto from_the_end = [&](int n) { return *tree.known.row<Token>(tree.nodes - n); };
  EXPECT_EQ(from_the_end(3), said);
  EXPECT_EQ(from_the_end(2), after_three);
  EXPECT_EQ(from_the_end(1), after_three) << "there is none of the last position";
}

TEST_F(Lookahead, Remembers_while_a_sequence_runs_and_forgets_when_it_ends) {
  make(4, 3, 3);
  const Budget budget{40, 20};
  for (int round = 0; round < 12; ++round) draft(budget), verify();
  const auto tokens = [&] {
    const DraftTree& tree = draft(budget);
    return Tokens(tree.known.data<Token>(), tree.known.data<Token>() + tree.nodes);
  };
  const Tokens now = tokens();
  drafter->forget(s);
  EXPECT_EQ(tokens(), now) << "it was preempted";
  s.finish = Finish::length, drafter->forget(s), s.finish = Finish::running;
  const Tokens fresh = tokens();
  EXPECT_NE(fresh, now);
  make(4, 3, 3);
  EXPECT_EQ(tokens(), fresh) << "as of a drafter that never saw it";
}

TEST_F(Lookahead, Keeps_n_grams_of_a_bounded_number_of_tokens) {
  constexpr int kMost = 4096;
  target.vocab = 100'000;
  make(60, 2, 1);
  Token unheard = 11;
  for (int round = 0; round < 80; ++round) {  // the target says nothing twice
    const DraftTree& tree = draft({62, 59});
    for (int n = 0; n < tree.nodes; ++n) *ranks.row<Token>(n) = unheard++;
    verify();
  }
  // The tokens of a round are first tokens of the next one, but the one that became the last token of the text, in
  // whose place the target's next token is.
  std::vector<Token> known;
  for (Token first = 0; first < unheard; ++first) {
    s.tokens.back() = first;
    const DraftTree& tree = draft({62, 59});
    if (tree.nodes > 1 && !tree.aside(1)) known.push_back(first);
  }
  EXPECT_EQ(int(known.size()), kMost);
  EXPECT_GT(known.front(), 300) << "the oldest are gone";
  EXPECT_GT(known.back(), unheard - 100) << "the newest are there";
}

TEST_F(Lookahead, States_the_budget_of_all_that_it_feeds) {
  const auto needs = [&](const json& options) {
    json all = options;
    all["name"] = "lookahead";
    return registries.drafters.traits(all, target);
  };
  EXPECT_EQ(needs({{"window", 5}, {"ngram", 3}, {"guesses", 2}}).whole, (Budget{14, 5, 0}));
  EXPECT_EQ(needs({{"window", 5}, {"cut", true}}).whole, Budget());
  EXPECT_TRUE(needs(json::object()).learns);
  EXPECT_EQ(needs(json::object()).ranks, 1);
}

}  // namespace
}  // namespace foretoken::test

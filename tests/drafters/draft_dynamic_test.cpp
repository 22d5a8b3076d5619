// draft_dynamic: its trees beside EAGLE-2's procedure written out plainly.
#include <gtest/gtest.h>

#include "experiments/conformance/devices.h"
#include "tests/drafters/recorded_trees.h"

namespace foretoken::test {
namespace {

using test::says;

json drafter(int width, int expand, const std::string& model = "table:other") {
  return {{"name", "draft_dynamic"}, {"model", model}, {"width", width}, {"expand", expand}};
}

struct Path {
  Tokens tokens;
  double joint = 1;
};

// The `width` best children of a path below `context`.
std::vector<Path> children(const TableModel& draft, const Tokens& context, const Path& path, int width) {
  Tokens all = context;
  all.insert(all.end(), path.tokens.begin(), path.tokens.end());
  const std::vector<double> p = draft.distribution(all, Warp{1});
  std::vector<Path> found;
  for (Token x = 0; x < Token(p.size()); ++x) {
    if (float(p[std::size_t(x)]) == 0) continue;
    found.push_back({path.tokens, path.joint * double(float(p[std::size_t(x)]))});
    found.back().tokens.push_back(x);
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &Path::joint);
  found.resize(std::min(found.size(), std::size_t(width)));
  return found;
}

// EAGLE-2: expands the best `expand` paths of every level, then keeps the best of all.
std::vector<Path> eagle_2(const TableModel& draft, const Tokens& context, const Budget& budget, int width, int expand) {
  std::vector<Path> all, level{{}};
  for (int depth = 1; depth <= budget.depth; ++depth) {
    std::vector<Path> next;
    for (const Path& path : level)
      for (Path& child : children(draft, context, path, width)) next.push_back(std::move(child));
    all.insert(all.end(), next.begin(), next.end());
    std::ranges::stable_sort(next, std::ranges::greater(), &Path::joint);
    next.resize(std::min(next.size(), std::size_t(expand)));
    level = std::move(next);
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &Path::joint);
  all.resize(std::min(all.size(), std::size_t(budget.nodes - 1)));
  return all;
}

std::vector<Tokens> sorted(const std::vector<Path>& paths) {
  std::vector<Tokens> all;
  for (const Path& p : paths) all.push_back(p.tokens);
  std::ranges::sort(all);
  return all;
}

std::vector<Tokens> paths_of(const Proposed& p) {
  std::vector<Tokens> all;
  for (int n = 1; n < p.tree.nodes; ++n) {
    EXPECT_EQ(p.drawn(n), Drawn::certain);
    const Tokens context = p.context(n);
    all.emplace_back(context.begin() + p.sequence.length(), context.end());
  }
  std::ranges::sort(all);
  return all;
}

TEST(DraftDynamic, keeps_the_best_nodes_of_eagle_2) {
  TreeScenario s;
  s.sampling = {.temperature = 0.6f, .top_k = 2};  // the raw distribution ranks, whatever the request's warp
  std::size_t largest = 0;
  int deepest = 0;
  for (const auto& [width, expand, nodes, depth] :
       {std::tuple(2, 2, 8, 4), {3, 1, 8, 5}, {6, 10, 30, 3}, {1, 1, 9, 4}, {4, 3, 16, 6}, {2, 5, 64, 5}}) {
    s.budget = {nodes, depth};
    const TableModel draft = s.draft_of("table:other");
    const auto backend = make_reference_backend();
    for (const Proposed& p : proposals(s, drafter(width, expand), *backend, random_requests(5, 6, 10, 24, 2))) {
      if (!p.request.budget.drafts()) continue;
      const auto expected = sorted(eagle_2(draft, p.sequence.tokens, p.request.budget, width, expand));
      EXPECT_EQ(paths_of(p), expected);
      largest = std::max(largest, expected.size());
      for (int n = 1; n < p.tree.nodes; ++n) deepest = std::max(deepest, p.depth(n));
    }
  }
  EXPECT_GE(largest, 29u);
  EXPECT_GE(deepest, 5);
}

TEST(DraftDynamic, siblings_come_best_first) {
  const TreeScenario s;
  const TableModel draft = s.draft_of("table:other");
  const auto backend = make_reference_backend();
  long pairs = 0;
  for (const Proposed& p : proposals(s, drafter(4, 4), *backend, random_requests(5, 6, 10, 24, 2)))
    for (int n = 2; n < p.tree.nodes; ++n) {
      if (p.parent(n) != p.parent(n - 1)) continue;
      const auto q = draft.distribution(p.context(p.parent(n)), Warp{1});
      EXPECT_GE(q[std::size_t(p.tokens[std::size_t(n) - 1])], q[std::size_t(p.tokens[std::size_t(n)])]);
      ++pairs;
    }
  EXPECT_GT(pairs, 100);
}

// Penalties of the sequence, and of the path, change which tokens are probable.
TEST(DraftDynamic, ranks_the_adjusted_distribution) {
  TreeScenario s;
  s.sampling.presence_penalty = 2;
  const TableModel draft = s.draft_of("table:other");
  const auto backend = make_reference_backend();
  long nodes = 0, repeated = 0;
  for (const Proposed& p : proposals(s, drafter(1, 1), *backend, random_requests(5, 6, 10, 24, 2)))
    for (int n = 1; n < p.tree.nodes; ++n, ++nodes) {
      const Tokens context = p.context(p.parent(n));
      const auto logits = draft.logits(context);
      std::vector<float> adjusted(logits.begin(), logits.end());
      const std::set<Token> output(context.begin() + p.sequence.prompt_length, context.end());
      for (const Token x : output) adjusted[std::size_t(x)] -= 2;
      const auto best = std::ranges::max_element(adjusted) - adjusted.begin();
      EXPECT_EQ(p.tokens[std::size_t(n)], Token(best));
      repeated += std::ranges::max_element(logits) - logits.begin() != best;
    }
  EXPECT_GT(nodes, 100);
  EXPECT_GT(repeated, 10) << "the penalty made a difference";
}

TEST(DraftDynamic, waits_at_most_once_a_level) {
  TreeScenario s;
  s.budget = {16, 3};
  SimulatedDevice device;
  int most = 0;
  const auto all = proposals(s, drafter(3, 3), device, random_requests(6, 6, 10, 30, 1),
                             [&](Engine&, const StepReport& r, auto) { most = std::max(most, r.waits); });
  EXPECT_EQ(most, 1 + 3);
  EXPECT_TRUE(needs_of(all_registries(), drafter(3, 3)).waits);
}

// Nodes that cannot be kept are not expanded: their rows are saved.
TEST(DraftDynamic, expands_no_node_that_cannot_be_kept) {
  TreeScenario s;
  s.budget = {3, 8};
  const auto backend = make_reference_backend();
  std::uint64_t rows = 0;
  long rounds = 0;
  (void)proposals(s, drafter(6, 10), *backend, random_requests(4, 6, 10, 40, 2),
                  [&](Engine& engine, const StepReport& r, auto) {
                    rows = engine.host().caches()[0]->books()->totals().rows;
                    for (const SequenceReport& q : r.sequences) rounds += q.drafted > 0;
                  });
  EXPECT_GT(rounds, 50);
  EXPECT_LT(rows, std::uint64_t(rounds) * 6) << "all six children of the root are candidates, two may be kept";
}

TEST(DraftDynamic, refuses_bad_options_in_one_sentence) {
  for (const char* option : {"width", "expand"})
    for (const json& value : {json(0), json(256), json(1.5), json("a"), json(nullptr)})
      EXPECT_TRUE(says(test::sentence_of([&] {
                         (void)all_registries().drafters.complete(
                             {{"name", "draft_dynamic"}, {"model", "table:other"}, {option, value}});
                       }),
                       "option '" + std::string(option) + "' of drafter 'draft_dynamic' must be integer", "1 to 255"));
}

}  // namespace
}  // namespace foretoken::test

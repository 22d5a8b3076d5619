// draft_tree: the tokens of every node by hand, at every temperature, and what of it depends on a budget or on a batch.
#include <gtest/gtest.h>

#include "drafters/tree_shape.h"
#include "experiments/conformance/devices.h"
#include "kernels/lane.h"
#include "tests/drafters/recorded_trees.h"

namespace foretoken::test {
namespace {

using test::says;

const char* const kPaths = "[[0], [1], [2], [0, 0], [0, 1], [1, 0], [1, 1], [1, 0, 0], [1, 0, 1], [1, 0, 0, 0]]";

json drafter(const json& shape, const std::string& draws, const std::string& model = "table:other") {
  return {{"name", "draft_tree"}, {"model", model}, {"shape", shape}, {"draws", draws}};
}

// The tokens by probability, the most probable first, the lowest among equals; without impossible ones.
Tokens ranked(const std::vector<double>& p) {
  Tokens order;
  for (Token x = 0; x < Token(p.size()); ++x)
    if (p[std::size_t(x)] > 0) order.push_back(x);
  std::ranges::stable_sort(order, [&](Token a, Token b) { return p[std::size_t(a)] > p[std::size_t(b)]; });
  return order;
}

// Calls f with every node below a root, and the number of nodes that it was called for.
template <class F> long for_nodes(const std::vector<Proposed>& all, const F& f) {
  long nodes = 0;
  for (const Proposed& p : all)
    for (int n = 1; n < p.tree.nodes; ++n, ++nodes) f(p, n);
  return nodes;
}

bool absent(const Proposed& p, int n) { return n > 0 && (p.tokens[std::size_t(n)] < 0 || absent(p, p.parent(n))); }

// The numbers in the shape of the nodes of a tree.
std::vector<TreeShape::Cut::Node> numbered(const Proposed& p, const json& shape) {
  return TreeShape::read(shape).cut(p.request.budget).nodes;
}

void expect_shapes(const std::vector<Proposed>& all, const json& shape) {
  int whole = 0;
  for (const Proposed& p : all) {
    if (!p.request.budget.drafts()) continue;
    const auto nodes = numbered(p, shape);
    ASSERT_EQ(p.tree.nodes, int(nodes.size()));
    for (int n = 1; n < p.tree.nodes; ++n) EXPECT_EQ(p.parent(n), nodes[std::size_t(n)].parent);
    whole += nodes.size() == TreeShape::read(shape).nodes().size();
  }
  EXPECT_GT(whole, 10);
}

void expect_ranked(const TreeScenario& s, const std::vector<Proposed>& all) {
  const TableModel draft = s.draft_of("table:other");
  long absents = 0;
  const long nodes = for_nodes(all, [&](const Proposed& p, int n) {
    EXPECT_EQ(p.drawn(n), Drawn::certain);
    if (absent(p, p.parent(n))) return;
    const Tokens order = ranked(draft.distribution(p.context(p.parent(n)), Warp{1}));
    const Token token = p.tokens[std::size_t(n)];
    EXPECT_EQ(token, p.rank(n) < int(order.size()) ? order[std::size_t(p.rank(n))] : -1);
    absents += token < 0;
  });
  EXPECT_GT(nodes, 200);
  EXPECT_GT(absents, 0);
}

TEST(DraftTree, at_temperature_0_children_are_the_most_probable_tokens) {
  TreeScenario s;
  s.target.impossible = 0.4, s.sampling.temperature = 0;
  const json shape = json::parse(kPaths);
  for (const char* draws : {"independent", "without_replacement", "certain"}) {
    s.verifier = std::string(draws) == "without_replacement" ? draws : "speculative_sampling";
    const auto backend = make_reference_backend();
    const auto all = proposals(s, drafter(shape, draws), *backend, random_requests(6, 6, 10, 30, 1));
    expect_shapes(all, shape);
    expect_ranked(s, all);
  }
}

// The raw distribution: neither the temperature nor a cut changes which tokens are guessed.
TEST(DraftTree, certain_children_are_the_most_probable_tokens_at_any_temperature) {
  TreeScenario s;
  s.target.impossible = 0.4, s.sampling = {.temperature = 0.7f, .top_k = 2};
  SimulatedDevice device;
  expect_ranked(s, proposals(s, drafter({3, 2}, "certain"), device, random_requests(6, 6, 10, 30, 1)));
}

TEST(DraftTree, independent_children_are_named_draws_from_q) {
  TreeScenario s;
  s.sampling.temperature = 0.8f;
  const json shape = json::parse(kPaths);
  const auto backend = make_reference_backend();
  const auto all = proposals(s, drafter(shape, "independent"), *backend, random_requests(6, 6, 10, 30, 1));
  expect_shapes(all, shape);
  const TableModel draft = s.draft_of("table:other");
  const long nodes = for_nodes(all, [&](const Proposed& p, int n) {
    EXPECT_EQ(p.drawn(n), Drawn::independent);
    const Distributions& q = p.tree.q.distributions.at(std::size_t(p.parent(n)));
    const std::vector<double> expected = draft.distribution(p.context(p.parent(n)), s.sampling.warp());
    for (Token x = 0; x < 6; ++x) EXPECT_EQ(q[0](x), expected[std::size_t(x)]);
    const auto number = std::uint32_t(numbered(p, shape)[std::size_t(n)].number);
    EXPECT_EQ(p.tokens[std::size_t(n)],
              HostLane(*backend, 6, p.request.draws).draw(q[0], {Role::draft, number, std::uint32_t(p.rank(n))}));
  });
  EXPECT_GT(nodes, 200);
}

TEST(DraftTree, children_without_replacement_are_one_named_draw) {
  TreeScenario s;
  s.verifier = "without_replacement";
  const json shape = json::parse(kPaths);
  const auto backend = make_reference_backend();
  const auto all = proposals(s, drafter(shape, "without_replacement"), *backend, random_requests(6, 6, 10, 30, 1));
  const long nodes = for_nodes(all, [&](const Proposed& p, int n) {
    EXPECT_EQ(p.drawn(n), Drawn::without_replacement);
    if (absent(p, p.parent(n))) return;
    const auto number = std::uint32_t(numbered(p, shape)[std::size_t(n)].number - p.rank(n));  // of the first sibling
    Tokens drawn;
    HostLane(*backend, 6, p.request.draws)
        .siblings(p.tree.q.distributions.at(std::size_t(p.parent(n)))[0], p.rank(n) + 1, {Role::draft, number, 0},
                  [&](int, Token x) { drawn.push_back(x); });
    EXPECT_EQ(p.tokens[std::size_t(n)], drawn.back());
  });
  EXPECT_GT(nodes, 200);
}

// Races at one position use the same noise, so i.i.d. siblings of a race would be copies.
TEST(DraftTree, siblings_of_a_race_differ) {
  TreeScenario s;
  s.target.impossible = 0, s.verifier = "coupled";
  for (const char* draws : {"independent", "without_replacement"}) {
    const auto backend = make_reference_backend();
    const auto all = proposals(s, drafter({3, 2}, draws), *backend, random_requests(6, 6, 10, 30, 1));
    const long nodes = for_nodes(all, [&](const Proposed& p, int n) {
      for (int m = 1; m < n; ++m)
        EXPECT_FALSE(p.parent(m) == p.parent(n) && p.tokens[std::size_t(m)] == p.tokens[std::size_t(n)]);
    });
    EXPECT_GT(nodes, 200);
  }
}

TEST(DraftTree, a_smaller_budget_changes_no_draw_of_the_nodes_that_it_leaves) {
  const json shape{2, 2, 2};
  const auto request = random_requests(1, 6, 10, 30, 3);
  for (const char* draws : {"independent", "without_replacement"}) {
    TreeScenario s;
    s.verifier = std::string(draws) == "independent" ? "speculative_sampling" : draws;
    std::map<int, Token> whole;  // by number
    for (const int nodes : {15, 9, 6, 3}) {
      s.budget = {nodes, 3};
      const auto backend = make_reference_backend();
      const Proposed first = proposals(s, drafter(shape, draws), *backend, request).at(0);
      ASSERT_EQ(first.tree.nodes, nodes);
      const auto numbers = numbered(first, shape);
      for (int n = 1; n < nodes; ++n) {
        const Token token = first.tokens[std::size_t(n)];
        EXPECT_EQ(whole.try_emplace(numbers[std::size_t(n)].number, token).first->second, token);
      }
    }
  }
}

// Each request's first tree, in an engine that serves all of them at their own temperatures.
std::map<std::uint64_t, Tokens> first_trees(Backend& backend,
                                            const std::vector<std::pair<std::uint64_t, float>>& some) {
  std::map<std::uint64_t, Tokens> first;
  const auto record = [&](Host&, std::span<const DraftRequest> asked, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i)
      for (int n = 0; n < trees[i].nodes && !(n == 0 && first.contains(asked[i].sequence->stream)); ++n)
        first[asked[i].sequence->stream].push_back(trees[i].drawn_at(n) ? *trees[i].drawn_at(n)
                                                                        : *trees[i].known.row<Token>(n));
  };
  TreeScenario s;
  const Subject subject = watched(s.subject(drafter({3, 1, 2}, "independent")), record);
  const Models models = table_models(s.target);
  Engine engine(backend, models.target, subject.registries, subject.configs, s.engine, models.load);
  for (const auto& [stream, temperature] : some) {
    Request r;
    r.prompt = {Token(stream % 6), 2, 4}, r.sampling.temperature = temperature;
    r.stream = stream;
    engine.submit(std::move(r));
  }
  (void)engine.step(), (void)engine.step();
  return first;
}

TEST(DraftTree, ranked_and_drawn_trees_are_drafted_side_by_side) {
  const std::vector<std::pair<std::uint64_t, float>> all{{1, 1.0f}, {2, 0.0f}, {3, 0.7f}, {4, 0.0f}};
  SimulatedDevice device;
  const auto together = first_trees(device, all);
  ASSERT_EQ(together.size(), 4u);
  for (const auto& one : all) {
    const auto backend = make_reference_backend();
    EXPECT_EQ(together.at(one.first), first_trees(*backend, {one}).at(one.first)) << "stream " << one.first;
    EXPECT_EQ(together.at(one.first).size(), 13u);
  }
}

// The first trees included, whose q is added up.
TEST(DraftTree, a_step_waits_for_the_device_once) {
  for (const float temperature : {0.0f, 1.0f}) {
    TreeScenario s;
    s.sampling.temperature = temperature;
    SimulatedDevice device;
    int most = 0;
    (void)proposals(s, drafter({3, 2}, "independent"), device, random_requests(6, 6, 10, 30, 1),
                    [&](Engine&, const StepReport& r, auto) { most = std::max(most, r.waits); });
    EXPECT_EQ(most, 1);
  }
}

// The widest and deepest tree at once: a chain of 64 levels and 191 siblings of its first node, after a prompt that
// takes several steps to read.
TEST(DraftTree, may_have_256_nodes_and_64_levels) {
  json shape = json::array();
  for (std::size_t depth = 1; depth <= std::size_t(kMaxPath); ++depth) shape.push_back(std::vector<int>(depth, 0));
  for (int rank = 1; rank < kMaxNodes - kMaxPath; ++rank) shape.push_back({rank});
  TreeScenario s;
  s.target = {.vocab = 300, .order = 1, .seed = 5, .impossible = 0, .positions = 1024};
  s.budget = {kMaxNodes, kMaxPath}, s.engine.step_rows = 0, s.engine.batch = 1;
  s.sampling.temperature = 0;
  const TestRequest request{Tokens(700, 3), 1, 200};
  const auto backend = make_reference_backend();
  int largest = 0, deepest = 0, accepted = 0, chunks = 0;
  (void)proposals(s, drafter(shape, "independent", "table:same"), *backend, {&request, 1},
                  [&](Engine&, const StepReport& report, auto) {
                    for (const SequenceReport& r : report.sequences) {
                      largest = std::max(largest, r.drafted), deepest = std::max(deepest, r.depth);
                      accepted = std::max(accepted, r.accepted), chunks += !r.judged;
                    }
                  });
  EXPECT_EQ(largest, kMaxNodes - 1);
  EXPECT_EQ(deepest, kMaxPath);
  EXPECT_EQ(accepted, kMaxPath);
  EXPECT_GT(chunks, 0);
}

std::vector<Drawn> proposed(const json& options) {
  json config{{"name", "draft_tree"}, {"model", "table:other"}};
  config.update(options);
  return needs_of(all_registries(), config).proposes;
}

TEST(DraftTree, says_what_it_may_propose) {
  using Kinds = std::vector<Drawn>;
  EXPECT_EQ(proposed(json::object()), (Kinds{Drawn::certain, Drawn::independent}));
  EXPECT_EQ(proposed({{"draws", "without_replacement"}}), (Kinds{Drawn::certain, Drawn::without_replacement}));
  EXPECT_EQ(proposed({{"draws", "certain"}}), Kinds{Drawn::certain});
  EXPECT_EQ(proposed({{"temperature", 0}}), Kinds{Drawn::certain});
  EXPECT_EQ(proposed({{"temperature", 0.5}}), Kinds{Drawn::independent});
  EXPECT_EQ(proposed({{"shape", {1, 1}}}), (Kinds{Drawn::certain, Drawn::chain}));
}

TEST(DraftTree, refuses_bad_options_in_one_sentence) {
  const auto refusal = [](const json& options) { return test::sentence_of([&] { (void)proposed(options); }); };
  EXPECT_EQ(refusal(json::object()), "");
  EXPECT_TRUE(says(refusal({{"shape", 4}}), "option 'shape' of drafter 'draft_tree' must be list", "not 4"));
  EXPECT_TRUE(says(refusal({{"shape", json::array()}}), "has no node below the root"));
  EXPECT_TRUE(says(refusal({{"shape", {2, 0}}}), "give them at least 1"));
  EXPECT_TRUE(says(refusal({{"draws", "iid"}}), "'iid'", "certain, independent, without_replacement"));
  EXPECT_TRUE(says(refusal({{"temperature", 1e-45}}), "'temperature' of the drafter 'draft_tree' is too small"));
}

}  // namespace
}  // namespace foretoken::test

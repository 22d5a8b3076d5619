// Trees with branches: the engine's checks, and the numbers in its reports.
#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// A drafter that returns the test's tree for every sequence.
class Shaped : public Drafter {
 public:
  using Grow = std::function<void(Backend&, DraftTree&)>;
  Shaped(Backend& b, Grow grow) : backend_(b), grow_(std::move(grow)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i)
      if (requests[i].budget.depth >= 3) grow_(backend_, trees[i]);
    return trees;
  }

 private:
  Backend& backend_;
  Grow grow_;
};

struct Trees : EngineScenario {
  std::unique_ptr<Engine> shaped(Shaped::Grow grow, int length = 3, int nodes = 16) {
    registries.drafters.replace(
        "shaped", entry_that<Drafter>(states(Needs{{Drawn::certain, Drawn::chain}}), [grow](const json&, Host& h) {
          return std::make_unique<Shaped>(h.backend(), grow);
        }));
    configs.drafter = {{"name", "shaped"}};
    configs.policy = {{"name", "fixed"}, {"length", length}, {"nodes", nodes}};
    return engine();
  }
  std::string refusal(Shaped::Grow grow) {
    const auto e = shaped(grow);
    e->submit(request({1, 2, 3}, 20));
    return sentence([&] { (void)without_failures(e->step()); });
  }
};

TEST_F(Trees, are_no_deeper_than_their_budget) {
  const auto chain_of = [&](int length) {
    return refusal([length](Backend&, DraftTree& t) {
      for (int n = 0; n < length; ++n) t.guess(n, 1);
    });
  };
  EXPECT_EQ(chain_of(3), "(no error)");
  const std::string message = chain_of(4);
  EXPECT_TRUE(says(message, "'shaped'") && says(message, "4 levels") && says(message, "a budget of 3")) << message;
}

// Adds a drawn node, with the distribution from which it was drawn.
void draw_below(Backend& b, DraftTree& t, int parent, Drawn how) {
  const std::vector<float> zeros(5, 0.0f);
  const Tensor logits = Tensor::host_copy<float>(zeros, DType::f32).reshaped({1, 5});
  t.q.distributions.resize(std::size_t(std::max(parent + 1, int(t.q.distributions.size()))));
  if (!t.q.distributions[std::size_t(parent)])
    t.q.distributions[std::size_t(parent)] = b.distributions(logits, std::vector{Warp{.temperature = 1}});
  *t.tokens.row<Token>(t.nodes) = 1;
  t.grow(parent, how);
}

TEST_F(Trees, a_node_that_was_drawn_as_an_only_child_has_no_siblings) {
  EXPECT_EQ(
      refusal([](Backend& b, DraftTree& t) { draw_below(b, t, 0, Drawn::chain), draw_below(b, t, 1, Drawn::chain); }),
      "(no error)");
  for (const bool guess_first : {false, true}) {
    const std::string message = refusal([guess_first](Backend& b, DraftTree& t) {
      if (guess_first) t.guess(0, 2);
      draw_below(b, t, 0, Drawn::chain);
      if (!guess_first) t.guess(0, 2);
    });
    EXPECT_TRUE(says(message, "'shaped'") && says(message, "drawn 'chain'") && says(message, "siblings")) << message;
  }
}

// Two guesses below the root: the first has no child, below the second is a chain of two.
void ragged(Backend&, DraftTree& t) {
  t.guess(0, 0);
  t.guess(t.guess(t.guess(0, 1), 1), 1);
}

// The tested levels depend on the node at which the accepted path ends, not on the depth of the tree elsewhere.
TEST_F(Trees, a_level_is_tested_where_the_accepted_path_had_children) {
  const auto e = shaped(ragged);
  for (int i = 0; i < 4; ++i) e->submit(request({i, 1, 2}, 50));
  int leaf = 0, refused = 0;
  while (!e->idle())
    for (const SequenceReport& r : e->step().sequences) {
      if (r.drafted != 4) continue;
      EXPECT_EQ(r.depth, 3);
      const bool at_leaf = r.accepted == 1 && r.emitted[0] == 0, at_end = r.accepted == 3;
      EXPECT_EQ(r.tested(), at_leaf || at_end ? r.accepted : r.accepted + 1) << r.accepted << " accepted";
      ASSERT_EQ(int(r.levels.size()), r.tested());
      for (int l = 0; l < r.tested(); ++l) {
        const bool first = l == 0;  // two children below the root, then one
        EXPECT_EQ(r.levels[std::size_t(l)].children, first ? 2 : 1);
        EXPECT_EQ(r.levels[std::size_t(l)].accepted, l >= r.accepted ? -1 : first ? int(r.emitted[0]) : 0);
      }
      leaf += at_leaf, refused += !at_leaf && !at_end;
    }
  EXPECT_GT(leaf, 5);
  EXPECT_GT(refused, 5);
}

TEST_F(Trees, absent_children_were_not_tested) {
  const auto e =
      shaped([](Backend&, DraftTree& t) { t.guess(t.guess(0, 1), -1), t.guess(0, -1), t.guess(t.guess(0, 2), 2); });
  e->submit(request({1, 1, 2}, 50));
  int leaf = 0, second = 0;
  while (!e->idle())
    for (const SequenceReport& r : e->step().sequences) {
      if (r.drafted != 3) continue;
      EXPECT_EQ(r.levels.at(0).children, 2) << "without the absent one";
      EXPECT_EQ(r.levels[0].accepted, r.accepted > 0 ? r.emitted[0] - 1 : -1);
      second += r.accepted > 0 && r.emitted[0] == 2;
      if (r.accepted != 1 || r.emitted[0] != 1) continue;
      EXPECT_EQ(r.tested(), 1);
      ++leaf;
    }
  EXPECT_GT(leaf, 0);
  EXPECT_GT(second, 0);
}

// A verifier that accepts the test's path.
class GivenVerdict : public Verifier {
 public:
  explicit GivenVerdict(std::vector<std::pair<int, Token>> path) : path_(std::move(path)) {}
  void verify(Backend&, const Trials& trials, Tensor verdicts) override {
    Verdict v;
    for (const auto& [node, token] : path_) v.follow(node, token);
    v.finish(4);
    for (int i = 0; i < trials.count(); ++i) *reinterpret_cast<Verdict*>(verdicts.row<std::uint8_t>(i)) = v;
  }

 private:
  std::vector<std::pair<int, Token>> path_;
};

TEST_F(Trees, a_verdict_follows_the_tree_from_the_root_down) {
  const auto step_with = [&](std::vector<std::pair<int, Token>> path) {
    registries.verifiers.replace(
        "given", entry_that<Verifier>(states(Soundness{{Drawn::certain, Drawn::chain}}),
                                      [=](const json&, Host&) { return std::make_unique<GivenVerdict>(path); }));
    configs.verifier = {{"name", "given"}};
    return refusal(ragged);
  };
  EXPECT_EQ(step_with({{1, 0}}), "(no error)");
  EXPECT_EQ(step_with({{2, 1}, {3, 1}}), "(no error)");
  for (const std::vector<std::pair<int, Token>>& path :
       std::vector<std::vector<std::pair<int, Token>>>{{{1, 0}, {3, 1}}, {{3, 1}}, {{2, 1}, {2, 1}}, {{0, 3}}}) {
    const std::string message = step_with(path);
    EXPECT_TRUE(says(message, "'given' accepted the node " + std::to_string(path.back().first)) &&
                says(message, "no child of"))
        << message;
  }
  for (const int node : {-3, 5, 1 << 20})
    EXPECT_TRUE(says(step_with({{node, 1}}), "accepted the node " + std::to_string(node))) << node;
}

}  // namespace
}  // namespace foretoken::test

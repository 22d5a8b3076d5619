// The engine's errors for invalid trees of a drafter.
#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// A drafter whose trees a test modifies.
class ModifiedTrees : public Drafter {
 public:
  using Modify = std::function<void(Backend&, std::span<const DraftRequest>, std::vector<DraftTree>&)>;
  ModifiedTrees(Backend& b, Modify modify) : backend_(b), modify_(std::move(modify)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees;
    for (const auto& r : requests) {
      trees.push_back(DraftTree::rooted(backend_, r.sequence->last(), r.budget.nodes + 8));
      for (int n = 0; n < r.budget.chain(); ++n) trees.back().guess(n, 1);
    }
    modify_(backend_, requests, trees);
    return trees;
  }

 private:
  Backend& backend_;
  Modify modify_;
};

struct TreeGuard : EngineScenario {
  // The message of a step with modified trees.
  std::string step_with(ModifiedTrees::Modify modify, const std::vector<Drawn>& proposes = {Drawn::certain}) {
    registries.drafters.replace("modified",
                                entry_that<Drafter>(states(Needs{.proposes = proposes}), [=](const json&, Host& h) {
                                  return std::make_unique<ModifiedTrees>(h.backend(), modify);
                                }));
    configs.drafter = {{"name", "modified"}};
    const auto e = engine();
    e->submit(request({1, 2, 3}, 20));
    e->submit(request({2, 2}, 20));
    return sentence([&] { (void)without_failures(e->step()); });
  }
};

TEST_F(TreeGuard, a_valid_tree_is_accepted) {
  EXPECT_EQ(step_with([](Backend&, auto, auto&) {}), "(no error)");
}

TEST_F(TreeGuard, a_drafter_may_not_exceed_its_budget) {
  const std::string text = step_with([](Backend&, auto, auto& trees) { trees[0].guess(0, 1); });
  EXPECT_TRUE(says(text, "'modified'") && says(text, "budget")) << text;
}

TEST_F(TreeGuard, a_drafter_must_return_one_tree_per_request) {
  EXPECT_TRUE(says(step_with([](Backend&, auto, auto& trees) { trees.pop_back(); }), "one tree"));
}

TEST_F(TreeGuard, a_tree_begins_with_a_root_and_parents_precede) {
  EXPECT_TRUE(says(
      step_with([](Backend&, auto, auto& trees) { trees[1].parents.template data<std::int32_t>()[1] = 2; }), "parent"));
  EXPECT_TRUE(
      says(step_with([](Backend&, auto, auto& trees) { trees[1].parents.template data<std::int32_t>()[2] = -1; }),
           "parent"));
  EXPECT_TRUE(says(step_with([](Backend&, auto, auto& trees) { trees[0].nodes = 0; }), "root"));
  EXPECT_TRUE(says(step_with([](Backend&, auto, auto& trees) { trees[0] = DraftTree{}; }), "root"));
}

TEST_F(TreeGuard, a_node_whose_kind_the_drafter_did_not_declare_is_refused) {
  const std::string text = step_with([](Backend&, auto, auto& trees) {
    trees[0].q.drawn.template data<std::uint8_t>()[1] = std::uint8_t(Drawn::without_replacement);
  });
  EXPECT_TRUE(says(text, "without_replacement")) << text;
}

// Whatever the verifier takes.
TEST_F(TreeGuard, a_drafter_is_held_to_the_kinds_of_nodes_that_it_named) {
  const auto chain = [](Backend& b, auto, auto& trees) {
    const Tensor logits = Tensor::host({1, 5}, DType::f32);
    std::ranges::fill(logits.template values<float>(), 0.0f);
    trees[0].q.drawn.template data<std::uint8_t>()[1] = std::uint8_t(Drawn::chain);
    trees[0].q.distributions = {b.distributions(logits, std::vector{Warp{.temperature = 1}})};
  };
  EXPECT_EQ(step_with(chain, {Drawn::certain, Drawn::chain}), "(no error)");
  EXPECT_TRUE(says(step_with(chain), "the drafter 'modified' returned the node 1, drawn 'chain'",
                   "Needs::proposes does not name"));
}

TEST_F(TreeGuard, a_guess_is_a_token_of_the_target) {
  for (const Token t : {-2, -7, 1'000'000}) {
    const std::string text =
        step_with([t](Backend&, auto, auto& trees) { *trees[0].known.template row<Token>(1) = t; });
    EXPECT_TRUE(says(text, "'modified' guessed the token " + std::to_string(t)) && says(text, "vocabulary")) << text;
  }
  EXPECT_EQ(step_with([](Backend&, auto, auto& trees) { *trees[0].known.template row<Token>(1) = -1; }), "(no error)")
      << "an absent node";
  EXPECT_TRUE(says(step_with([](Backend&, auto, auto& trees) { ++*trees[0].known.template row<Token>(0); }), "root"));
  EXPECT_TRUE(says(step_with([](Backend& b, auto, auto& trees) {
                     for (auto tree = DraftTree::rooted(b, 1, 2); tree.nodes < 9;) trees[0].nodes = tree.guess(0, 1);
                   }),
                   "capacity for 2 nodes"));
}

// Drawn tokens are indices into distributions and embeddings, as guessed ones are.
TEST_F(TreeGuard, a_drawn_node_is_a_token_of_the_target_from_a_distribution_of_its_vocabulary) {
  const std::vector<Drawn> either{Drawn::certain, Drawn::chain};
  const auto drawn = [](DraftTree& tree, Token token, int how = int(Drawn::chain)) {
    *tree.known.row<Token>(1) = token;
    *tree.q.drawn.row<std::uint8_t>(1) = std::uint8_t(how);
  };
  for (const Token t : {-2, -7, 5, 1'000'000}) {
    const std::string text = step_with([=](Backend&, auto, auto& trees) { drawn(trees[0], t); }, either);
    EXPECT_TRUE(says(text, "'modified' drew the token " + std::to_string(t)) && says(text, "vocabulary of 5")) << text;
  }
  EXPECT_TRUE(says(step_with([=](Backend&, auto, auto& trees) { drawn(trees[1], 1, int(Drawn::aside)); }),
                   "returned the node 2, drawn 'certain', below one drawn 'aside'", "would never be judged"));
  EXPECT_TRUE(says(step_with([=](Backend&, auto, auto& trees) { drawn(trees[1], 77, int(Drawn::aside)); }),
                   "guessed the token 77 at node 1", "vocabulary of 5"));
  for (const int how : {6, 77, 255}) {
    const std::string text = step_with([=](Backend&, auto, auto& trees) { drawn(trees[1], 1, how); });
    EXPECT_TRUE(says(text, "Proposal::drawn is " + std::to_string(how) + ", which is no Drawn")) << text;
  }
  const auto from_distribution_of = [&](int vocab) {
    return step_with(
        [=](Backend& b, auto, auto& trees) {
          const std::vector<float> zeros(std::size_t(vocab), 0.0f);
          const Tensor logits = Tensor::host_copy<float>(zeros, DType::f32).reshaped({1, vocab});
          drawn(trees[0], 1), trees[0].q.distributions = {b.distributions(logits, std::vector{Warp{.temperature = 1}})};
        },
        either);
  };
  EXPECT_EQ(from_distribution_of(5), "(no error)");
  for (const int vocab : {3, 6})
    EXPECT_TRUE(says(from_distribution_of(vocab),
                     "a distribution q of " + std::to_string(vocab) + " tokens, the target's have 5;"))
        << from_distribution_of(vocab);
}

// A node count beyond the arrays: nothing past an array's end is read.
TEST_F(TreeGuard, a_tree_has_no_more_nodes_than_capacity) {
  const auto counted = [](DraftTree tree, int nodes) {
    tree.nodes = nodes;
    return tree;
  };
  const std::string text = step_with([=](Backend& b, auto requests, auto& trees) {
    trees[0] = counted(DraftTree::rooted(b, requests[0].sequence->last(), 1), 3);
  });
  EXPECT_TRUE(says(text, "'modified' returned a tree of 3 nodes with capacity for 2;") &&
              says(text, "DraftTree::rooted"))
      << text;
  for (Tensor DraftTree::* array : {&DraftTree::known, &DraftTree::parents, &DraftTree::tokens})
    EXPECT_TRUE(says(step_with([=](Backend&, auto, auto& trees) { trees[1].*array = (trees[1].*array).rows(0, 2); }),
                     "capacity for 2;"));
  EXPECT_TRUE(says(step_with([](Backend&, auto, auto& trees) { trees[1].q.drawn = trees[1].q.drawn.rows(0, 2); }),
                   "capacity for 2;"));
  EXPECT_TRUE(says(step_with([](Backend&, auto, auto& trees) { trees[1].q.drawn = {}; }), "capacity for 0;"));
  EXPECT_TRUE(says(step_with([](Backend&, auto, auto& trees) { trees[0].nodes = 1, trees[0].q.drawn = {}; }),
                   "a tree of 1 nodes with capacity for 0;"))
      << "a bare root";
  EXPECT_EQ(step_with([](Backend& b, auto requests, auto& trees) {
              trees[0] = DraftTree::rooted(b, requests[0].sequence->last(), 0);
            }),
            "(no error)");
}

}  // namespace
}  // namespace foretoken::test

// What a drafter must not return: each is one sentence with drafter, sequence and node, and fails that sequence alone,
// whether the host or the device chose the tokens.
#include "experiments/conformance/devices.h"
#include "tests/framework/engine/failure_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// Drafts as `inner` does, then a test spoils the trees of stream 2.
class Spoiled : public Drafter {
 public:
  using Spoil = std::function<void(Backend&, const DraftRequest&, DraftTree&)>;
  Spoiled(Backend& backend, std::unique_ptr<Drafter> inner, Spoil spoil)
      : backend_(backend), inner_(std::move(inner)), spoil_(std::move(spoil)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    auto trees = inner_->draft(requests);
    for (std::size_t i = 0; i < trees.size(); ++i)
      if (requests[i].sequence->stream == 2 && requests[i].sequence->length() >= 6 && trees[i].nodes > 1)
        spoil_(backend_, requests[i], trees[i]);
    return trees;
  }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  Backend& backend_;
  std::unique_ptr<Drafter> inner_;
  Spoil spoil_;
};

struct BadTrees : FailureScenario {
  BadTrees() {
    configs.policy = {{"name", "fixed"}, {"length", 3}, {"nodes", 16}};
    configs.verifier = {{"name", "without_replacement"}};
  }
  // Of three requests the second alone fails, with a message that holds `what`, on a host backend and on a device.
  void fails_alone(const Spoiled::Spoil& spoil, const std::string& what) {
    const json inner = {
        {"name", "draft_tree"}, {"model", "table:other"}, {"shape", {2, 2, 1}}, {"draws", "without_replacement"}};
    registries.drafters.replace(
        "spoiled", entry_that<Drafter>(states(Needs{.proposes = {Drawn::without_replacement, Drawn::certain}}),
                                       [=, r = conformance::all_registries()](const json&, Host& h) {
                                         return std::make_unique<Spoiled>(h.backend(), r.drafters.make(inner, h),
                                                                          spoil);
                                       }));
    configs.drafter = {{"name", "spoiled"}};
    for (const bool device : {false, true}) {
      if (device) backend = std::make_unique<conformance::SimulatedDevice>();
      for (const int batch : batches) {
        options.batch = batch;
        const std::vector<Request> requests{clean({1, 2, 3}, 1, true), clean({2, 1, 2}, 2, true), clean({3, 3}, 3)};
        const Sequence failed = one_fails(requests, 1, what);
        EXPECT_TRUE(says(failed.failure, "for sequence 2 the drafter 'spoiled'")) << failed.failure;
        EXPECT_GE(failed.length(), 6) << "what it had before stays";
      }
    }
    backend = make_reference_backend();
  }

  std::vector<int> batches{1, 4};
};

TEST_F(BadTrees, a_parent_that_comes_after_its_child) {
  fails_alone([](Backend&, auto&, DraftTree& t) { *t.parents.row<std::int32_t>(1) = 2; },
              "whose node 1 has the parent 2; a parent must come before its children");
  fails_alone([](Backend&, auto&, DraftTree& t) { *t.parents.row<std::int32_t>(2) = 2; }, "node 2 has the parent 2;");
}

TEST_F(BadTrees, a_token_outside_the_vocabulary_that_the_host_knows) {
  for (const Token token : {5, 1 << 30, -7})
    fails_alone(
        [token](Backend& b, const DraftRequest& r, DraftTree& t) {
          t = DraftTree::rooted(b, r.sequence->last(), 2);
          t.guess(t.guess(0, 1), token);
        },
        "guessed the token " + std::to_string(token) + " at node 2, outside the target's vocabulary of 5");
}

// On a device the host learns of it after the target's forward, which must not have read an embedding for it.
TEST_F(BadTrees, a_token_outside_the_vocabulary_that_was_drawn) {
  for (const Token token : {5, 1 << 30, -7})
    fails_alone([token](Backend&, auto&, DraftTree& t) { *t.tokens.row<Token>(2) = token; }, "at node 2");
}

TEST_F(BadTrees, equal_siblings_that_were_drawn_without_replacement) {
  fails_alone([](Backend&, auto&, DraftTree& t) { *t.tokens.row<Token>(2) = *t.tokens.row<Token>(1); },
              "at node 1 and at its sibling, node 2, which were drawn 'without_replacement'");
}

// Multiplies the mass by which the root's q is divided.
Spoiled::Spoil scaled(double by) {
  return [by](Backend& b, auto&, DraftTree& t) {
    Distributions& q = t.q.distributions[0];
    const Tensor rows = b.allocate(q.rows.shape(), DType::u8);
    b.copy(q.rows, rows);
    reinterpret_cast<DistributionRow*>(rows.raw())->mass *= by;
    q.rows = rows;
  };
}

// In every tree where caches are checked, as in the conformance kit; else in the first trees of an engine.
TEST_F(BadTrees, a_q_that_does_not_add_up_to_1) {
  fails_alone(scaled(0.5), "after node 0 a distribution q that adds up to 2.000000, not to 1");
  fails_alone(scaled(1.01), "after node 0 a distribution q that adds up to 0.990099, not to 1");
  options.check = false, batches = {4};
  fails_alone(scaled(0.5), "after node 0 a distribution q that adds up to 2.000000, not to 1");
}

TEST_F(BadTrees, a_tree_that_is_wider_or_deeper_than_its_budget) {
  fails_alone(
      [](Backend& b, const DraftRequest& r, DraftTree& t) {
        t = DraftTree::rooted(b, r.sequence->last(), 20);
        while (t.nodes < 17) t.guess(0, 1);
      },
      "returned a tree of 17 nodes for a budget of 16, the root included");
  fails_alone(
      [](Backend& b, const DraftRequest& r, DraftTree& t) {
        t = DraftTree::rooted(b, r.sequence->last(), 20);
        for (int n = 0; n < 4; ++n) t.guess(n, 1);
      },
      "returned a tree of 4 levels below the root, down to node 4, for a budget of 3");
}

// The context of 64 tokens leaves two levels.
TEST_F(BadTrees, a_tree_that_is_deeper_than_the_context) {
  registries.drafters.replace(
      "spoiled", entry_that<Drafter>(states(Needs{.proposes = {Drawn::independent, Drawn::certain}}),
                                     [r = conformance::all_registries()](const json&, Host& h) {
                                       const auto deep = [](Backend& b, const DraftRequest& request, DraftTree& t) {
                                         t = DraftTree::rooted(b, request.sequence->last(), 3);
                                         for (int n = 0; n < 3; ++n) t.guess(n, 1);
                                       };
                                       const json inner = {
                                           {"name", "draft_tree"}, {"model", "table:other"}, {"shape", {1, 1, 1}}};
                                       return std::make_unique<Spoiled>(h.backend(), r.drafters.make(inner, h), deep);
                                     }));
  configs.drafter = {{"name", "spoiled"}};
  configs.verifier = {{"name", "speculative_sampling"}};
  Request r = clean(Tokens(61, 1), 2);
  const std::vector<Sequence> done = serve({r});
  ASSERT_EQ(done.size(), 1u);
  EXPECT_TRUE(says(done[0].failure, "for sequence 1 the drafter 'spoiled' returned a tree of 3 levels",
                   "down to node 3, for a budget of 2"))
      << done[0].failure;
}

// Options say what a tree is at most: the drafter itself keeps to the budget and to the context.
TEST_F(BadTrees, a_shape_that_is_larger_than_budget_and_context_is_cut) {
  configs.drafter = {{"name", "draft_tree"},
                     {"model", "table:other"},
                     {"shape", {3, 2, 2, 1, 1, 1}},
                     {"draws", "without_replacement"}};
  const std::vector<Sequence> done = serve({clean(Tokens(61, 1), 1), clean({1, 2}, 2)});
  ASSERT_EQ(done.size(), 2u);
  for (const Sequence& s : done) EXPECT_EQ(s.finish, Finish::length) << s.failure;
  EXPECT_EQ(done[0].length(), 64);
}

}  // namespace
}  // namespace foretoken::test

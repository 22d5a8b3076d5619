// Budgets between policy, scheduler and drafter: nodes and depth are independent, the rows of a step grow with them,
// cut trees are counted, and policies observe the reports.
#include <set>

#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using conformance::Tokens;
using nlohmann::json;

// A drafter that guesses as many nodes as the budget has, in levels of at most `width` nodes, all children of the first
// node of the level above.
class WideTrees : public Drafter {
 public:
  WideTrees(Backend& b, int width, std::vector<Budget>& seen) : backend_(b), width_(width), seen_(seen) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees;
    for (const DraftRequest& r : requests) {
      seen_.push_back(r.budget);
      DraftTree& tree = trees.emplace_back(DraftTree::rooted(backend_, r.sequence->last(), r.budget));
      for (int level = 0, above = 0; level < r.budget.depth && tree.nodes < r.budget.nodes; ++level) {
        const int first = tree.nodes;
        for (int k = 0; k < width_ && tree.nodes < r.budget.nodes; ++k) tree.guess(above, Token(k % 5));
        above = first;
      }
    }
    return trees;
  }

 private:
  Backend& backend_;
  int width_;
  std::vector<Budget>& seen_;
};

// A policy with the same budget for every sequence, which records its calls.
class RecordingPolicy : public LengthPolicy {
 public:
  struct Notes {
    std::vector<PastOnly> past;
    std::vector<StepReport> reports;
    std::vector<SequenceId> forgotten;
  };
  RecordingPolicy(const Budget& budget, Notes& notes) : budget_(budget), notes_(notes) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    notes_.past.insert(notes_.past.end(), past.begin(), past.end());
    return std::vector<Budget>(past.size(), budget_);
  }
  void observe(const StepReport& report) override { notes_.reports.push_back(report); }
  void forget(const Sequence& sequence) override { notes_.forgotten.push_back(sequence.id); }

 private:
  Budget budget_;
  Notes& notes_;
};

struct Budgets : EngineScenario {
  std::vector<Budget> seen;
  RecordingPolicy::Notes notes;
  bool confidence = false;  // whether the drafter states Needs::confidence

  // The engine with that drafter, of this width, under budgets of this size.
  std::unique_ptr<Engine> wide_trees(int width, const Budget& given, const Budget& most = {kMaxNodes, kMaxPath}) {
    registries.drafters.replace(
        "wide_trees",
        entry_that<Drafter>(
            [this](const json&, const ModelInfo&) {
              return Needs{.proposes = {Drawn::certain}, .confidence = confidence};
            },
            [this, width](const json&, Host& h) { return std::make_unique<WideTrees>(h.backend(), width, seen); }));
    registries.policies.replace("recording", entry_that<LengthPolicy>(states(most), [this, given](const json&, Host&) {
                                  return std::make_unique<RecordingPolicy>(given, notes);
                                }));
    configs = {{{"name", "wide_trees"}}, {{"name", "recording"}}, {{"name", "coupled"}}};
    options.pages = 2048;
    return engine();
  }
  static long cut_of(Engine& e) {
    long cut = 0;
    while (!e.idle()) cut += e.step().cut;
    return cut;
  }
};

TEST_F(Budgets, a_tree_of_60_nodes_is_not_cut_until_the_output_ends) {
  options.step_rows = 512;
  const auto e = wide_trees(20, {60, 3});
  e->submit(request({1, 2}, 40));
  EXPECT_EQ(cut_of(*e), 0);
  EXPECT_GT(seen.size(), 9u);
  for (std::size_t i = 0; i < seen.size(); ++i)
    EXPECT_TRUE(seen[i] == (Budget{60, 3}) || (i + 3 >= seen.size() && seen[i].depth < 3)) << "round " << i;
}

TEST_F(Budgets, a_budget_above_what_the_policy_states_fails_its_sequence_with_one_sentence) {
  for (const Budget& given : {Budget{6, 3}, Budget{5, 4}}) {
    const auto e = wide_trees(2, given, {5, 3});
    e->submit(request({1, 2}, 20));
    const StepReport report = e->step();
    ASSERT_EQ(report.finished.size(), 1u);
    EXPECT_EQ(report.finished[0].finish, Finish::failed);
    EXPECT_EQ(report.finished[0].failure,
              "for sequence 1 the policy 'recording' gave a budget of " + std::to_string(given.nodes) + " nodes and " +
                  std::to_string(given.depth) +
                  " levels, above the largest that it states, of 5 nodes and 3 levels; let Entry::traits "
                  "state the largest");
    EXPECT_TRUE(e->idle());
  }
}

TEST_F(Budgets, no_budget_is_larger_than_a_tree_may_be) {
  options.step_rows = 4096;
  const auto e = wide_trees(300, {100000, 100000}, {100000, 100000});
  e->submit(request({1, 2}, 60));
  e->step();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0], (Budget{kMaxNodes, 59}));
  EXPECT_EQ(notes.past.at(0).room, (Budget{kMaxNodes, 59}));
}

TEST_F(Budgets, the_rows_of_a_step_grow_with_the_trees_unless_they_are_given) {
  const auto rows = [&](int step_rows) {
    options.step_rows = step_rows;
    const auto e = wide_trees(250, {200, 1}, {200, 1});
    for (int i = 0; i < 4; ++i) e->submit(request({i, 2}, 30));
    e->step();
    return e->step().rows;
  };
  EXPECT_EQ(rows(0), 4 * 200);
  EXPECT_EQ(rows(512), 512);
}

TEST_F(Budgets, prompts_are_read_beside_the_trees_of_a_full_step) {
  models = conformance::table_models({.vocab = 5, .positions = 2048});
  options.step_rows = 0;
  const auto e = wide_trees(250, {200, 1}, {200, 1});
  for (int i = 0; i < 3; ++i) e->submit(request({i, 2}, 30));
  e->step();
  e->submit(request(conformance::Tokens(700, 1), 30));
  EXPECT_EQ(e->step().rows, 3 * 200 + 512);
  EXPECT_EQ(e->step().rows, 3 * 200 + (700 - 1 - 512) + 200);
}

TEST_F(Budgets, prompts_of_a_large_batch_have_more_rows) {
  models = conformance::table_models({.vocab = 5, .positions = 16384});
  options.step_rows = 0, options.page_rows = 16;
  for (const auto& [batch, rows] : {std::pair{15, 512}, std::pair{16, 512}, std::pair{17, 544}, std::pair{64, 2048},
                                    std::pair{256, 8192}, std::pair{300, 8192}}) {
    options.batch = batch;
    const auto e = wide_trees(2, {2, 1}, {2, 1});
    for (int i = 0; i < batch; ++i) e->submit(request(conformance::Tokens(9000, 1), 3));
    EXPECT_EQ(e->step().rows, rows) << batch;
  }
}

TEST_F(Budgets, the_memory_for_logits_bounds_the_trees_of_a_step) {
  models = conformance::table_models({.vocab = 4000, .positions = 64});
  options.logits_mib = 1;  // 21 rows of logits, draft logits and raw copies, of 4 bytes a token
  const auto e = wide_trees(50, {20, 1}, {20, 1});
  for (int i = 0; i < 4; ++i) e->submit(request({i, 2}, 30));
  e->step();
  const StepReport report = e->step();
  EXPECT_EQ(report.rows, 21);
  EXPECT_EQ(report.cut, 4);
}

TEST_F(Budgets, a_tree_that_left_rows_unused_was_not_cut) {
  options.batch = 2, options.step_rows = 14;
  const auto e = wide_trees(2, {20, 1}, {20, 1});  // of the 20 nodes there is room for 7, of which 3 are used
  e->submit(request({1, 2}, 20)), e->submit(request({3, 2}, 20));
  EXPECT_EQ(cut_of(*e), 0);
  EXPECT_TRUE(std::ranges::any_of(seen, [](const Budget& b) { return b.nodes > 3 && b.nodes < 20; }));
}

TEST_F(Budgets, a_tree_that_was_cut_by_the_rows_of_a_step_is_counted) {
  options.batch = 2;
  for (const auto& [rows, some] : {std::pair(6, true), std::pair(64, false)}) {
    options.step_rows = rows;
    const auto e = wide_trees(1, {5, 4}, {5, 4});
    e->submit(request({1, 2}, 20)), e->submit(request({3, 2}, 20));
    EXPECT_EQ(cut_of(*e) > 0, some) << rows << " rows: trees at the end of an output are smaller, but not cut";
  }
}

TEST_F(Budgets, a_policy_observes_every_step_and_forgets_ended_sequences) {
  options.step_rows = 64;
  const auto e = wide_trees(2, {5, 2});
  const SequenceId first = e->submit(request({1, 2}, 3)), second = e->submit(request({2, 2}, 12));
  const SequenceId third = e->submit(request({2, 3}, 12));
  e->step();
  e->cancel(third);
  std::size_t steps = 1;
  while (!e->idle()) e->step(), ++steps;
  ASSERT_EQ(notes.reports.size(), steps);
  EXPECT_EQ(notes.reports[0].sequences.size(), 3u);
  EXPECT_GT(notes.reports[0].phases.total, 0) << "the report is complete";
  EXPECT_EQ(std::set(notes.forgotten.begin(), notes.forgotten.end()), (std::set{first, second, third}));
  EXPECT_EQ(notes.forgotten.size(), 3u);
  EXPECT_EQ(notes.reports.back().finished.size(), 1u) << "a report comes before its sequences are forgotten";
}

TEST_F(Budgets, confidence_that_the_drafter_does_not_implement_is_an_error) {
  const auto refused = [&](const Budget& given, const Budget& most) {
    return sentence([&] {
      const auto e = wide_trees(2, given, most);
      e->submit(request({1, 2}, 12));
      e->step();
    });
  };
  EXPECT_EQ(refused({5, 2}, {5, 2}), "(no error)");
  for (const std::string& message : {refused({5, 2}, {5, 2, 0.4f}), refused({5, 2, 0.4f}, {5, 2})})
    EXPECT_TRUE(says(message, "'recording' sets Budget::confidence") && says(message, "'wide_trees' does not serve"))
        << message;
}

// A dense trace is refused by what the policy states: its drafts must not end by confidence all the same.
TEST_F(Budgets, confidence_that_the_policy_does_not_state_fails_its_sequence) {
  confidence = true;
  const auto e = wide_trees(2, {5, 2, 0.4f}, {5, 2});
  e->submit(request({1, 2}, 12));
  const StepReport report = e->step();
  ASSERT_EQ(report.finished.size(), 1u);
  EXPECT_EQ(report.finished[0].failure,
            "for sequence 1 the policy 'recording' gave a budget that sets Budget::confidence, unlike the largest that "
            "it states; let Entry::traits set it");
}

TEST_F(Budgets, confidence_reaches_a_drafter_that_implements_it) {
  confidence = true;
  for (const int step_rows : {64, 5}) {  // room for the whole budget, and for less
    options.step_rows = step_rows;
    seen.clear();
    const auto e = wide_trees(2, {8, 3, 0.4f}, {8, 3, 0.4f});
    e->submit(request({1, 2}, 12));
    cut_of(*e);
    ASSERT_GT(seen.size(), 3u);
    EXPECT_EQ(seen[0].nodes < 8, step_rows < 8);
    for (const Budget& b : seen) EXPECT_EQ(b.confidence, b.drafts() ? 0.4f : 0) << step_rows << " rows";
  }
}

// Traits before construction
// -------------------------------------------------------------------------------------------------------

TEST_F(Budgets, an_unsound_pair_is_refused_before_anything_is_made) {
  int made = 0;
  registries.drafters.replace("sequoia", entry_that<Drafter>(states(Needs{.proposes = {Drawn::without_replacement}}),
                                                             [&](const json&, Host& h) {
                                                               ++made;
                                                               return std::make_unique<WideTrees>(h.backend(), 1, seen);
                                                             }));
  configs.drafter = {{"name", "sequoia"}};
  const std::string message = sentence([&] { engine(); });
  EXPECT_TRUE(says(message, "not sound") && says(message, "without_replacement")) << message;
  EXPECT_EQ(made, 0);
  configs.verifier = {{"name", "coupled"}};
  EXPECT_EQ(sentence([&] { engine(); }), "(no error)");
  EXPECT_EQ(made, 1);
}

TEST_F(Budgets, traits_depend_on_options_and_target) {
  registries.drafters.replace("wide",
                              {"",
                               "",
                               {{"drawn", "boolean", false, "draws its nodes"}},
                               [&](const json&, Host& h) { return std::make_unique<WideTrees>(h.backend(), 1, seen); },
                               [](const json& o, const ModelInfo& target) {
                                 const bool drawn = o.at("drawn").get<bool>() && target.vocab == 5;
                                 return Needs{.proposes = {drawn ? Drawn::marginals : Drawn::certain}};
                               }});
  const auto of = [&](const json& config, int vocab) {
    ModelInfo target;
    target.vocab = vocab;
    return registries.drafters.traits(config, target).proposes.at(0);
  };
  EXPECT_EQ(of({{"name", "wide"}}, 5), Drawn::certain);
  EXPECT_EQ(of({{"name", "wide"}, {"drawn", true}}, 5), Drawn::marginals);
  EXPECT_EQ(of({{"name", "wide"}, {"drawn", true}}, 6), Drawn::certain);
}

TEST_F(Budgets, a_component_without_traits_is_an_error) {
  EXPECT_EQ(sentence([&] { registries.drafters.add("mute", {}); }),
            "the drafter 'mute' states no traits, which an engine must know before it is made; fill Entry::traits");
  EXPECT_TRUE(says(sentence([&] { registries.policies.replace("mute", {}); }), "the policy 'mute' states no traits"));
  EXPECT_TRUE(says(sentence([&] { registries.verifiers.add("mute", {}); }), "the verifier 'mute' states no traits"));
}

}  // namespace
}  // namespace foretoken::test

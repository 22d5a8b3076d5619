// A drafter's model that was skipped for many steps has many tokens to read before it can draft. For all sequences
// together it reads at most the rows of one step in a step.
#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// Counts the rows of every forward.
class CountingModel : public Model {
 public:
  CountingModel(std::shared_ptr<Model> inner, std::vector<int>& rows) : inner_(std::move(inner)), rows_(rows) {}
  const ModelInfo& info() const override { return inner_->info(); }
  Output forward(Backend& b, const Rows& rows, std::span<const KvLayer> kv) override {
    rows_.push_back(rows.layout.rows);
    return inner_->forward(b, rows, kv);
  }

 private:
  std::shared_ptr<Model> inner_;
  std::vector<int>& rows_;
};

// A policy that drafts nothing before a sequence has so many tokens.
class Late : public LengthPolicy {
 public:
  explicit Late(int from) : from_(from) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (const PastOnly& p : past) all.push_back(p.length >= from_ ? Budget{3, 2} : Budget());
    return all;
  }

 private:
  int from_;
};

struct CatchUpTest : EngineScenario {
  std::vector<int> drafts, targets;  // rows of each forward

  void SetUp() override {
    options = {.batch = 8, .step_rows = 32, .page_rows = 2, .pages = 1024, .check = true};
    models.target = std::make_shared<CountingModel>(models.target, targets);
    models.load = [this, load = models.load](const ModelChoice& choice) {
      return std::make_shared<CountingModel>(load(choice), drafts);
    };
  }
  // Serves eight requests; returns how many nodes were drafted, by sequence.
  std::map<SequenceId, int> serve(int tokens) {
    const auto e = engine();
    for (int i = 0; i < 8; ++i) e->submit(request({Token(i % 5), Token(i / 2)}, tokens));
    std::map<SequenceId, int> drafted;
    while (!e->idle())
      for (const SequenceReport& r : e->step().sequences) drafted[r.id] += r.drafted;
    return drafted;
  }
};

TEST_F(CatchUpTest, sequences_that_catch_up_together_share_the_rows_of_a_step) {
  registries.policies.add("late", entry_that<LengthPolicy>(states(Budget{3, 2}), [](const json&, Host&) {
                            return std::make_unique<Late>(30);
                          }));
  configs.policy = {{"name", "late"}};
  for (const auto& [id, drafted] : serve(60)) EXPECT_GT(drafted, 0) << "sequence " << id << " never caught up";
  EXPECT_LE(*std::ranges::max_element(targets), 32);
  EXPECT_LE(*std::ranges::max_element(drafts), 32);
  EXPECT_EQ(*std::ranges::max_element(drafts), 32) << "all rows of a step are used";
}

// Pages run out repeatedly: drafters' caches are evicted and computed again.
TEST_F(CatchUpTest, evicted_drafters_share_the_rows_of_a_step) {
  options.pages = 8 * 20, options.step_rows = 24;
  int drafted = 0;
  for (const auto& [id, nodes] : serve(40)) drafted += nodes;
  EXPECT_GT(drafted, 0);
  EXPECT_LE(*std::ranges::max_element(drafts), 24);
}

// A sequence whose draft cache lacks little gets its rows, however long the prompts of the others are.
TEST_F(CatchUpTest, a_sequence_that_has_caught_up_drafts_in_every_round) {
  const auto e = engine();
  const SequenceId first = e->submit(request({1, 2}, 40));
  (void)e->step();
  for (int i = 0; i < 3; ++i) e->submit(request(conformance::Tokens(50, Token(i)), 4));
  int rounds = 0, drafted = 0;
  while (!e->idle())
    for (const SequenceReport& r : e->step().sequences)
      if (r.id == first && r.finish == Finish::running) ++rounds, drafted += r.drafted > 0;
  EXPECT_GT(rounds, 8);
  EXPECT_GE(drafted, rounds - 1) << "except at the end of the output";
}

}  // namespace
}  // namespace foretoken::test

// Nodes that are absent are no drafts: neither the report of a step nor what a policy learns of a round counts them.
#include "tests/framework/engine/engine_scenario.h"

namespace foretoken::test {
namespace {

// Below the root an absent node, a guess, and below the absent one a guess that is absent with it.
class WithAbsent : public Drafter {
 public:
  explicit WithAbsent(Backend& backend) : backend_(backend) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      if (requests[i].budget.nodes < 4 || requests[i].budget.depth < 2) continue;
      const int absent = trees[i].guess(0, -1);
      trees[i].guess(0, 2), trees[i].guess(absent, 1);
    }
    return trees;
  }

 private:
  Backend& backend_;
};

class Notes : public LengthPolicy {
 public:
  Notes(std::vector<PastOnly>& past, std::vector<SequenceReport>& reports) : past_(past), reports_(reports) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    past_.insert(past_.end(), past.begin(), past.end());
    return std::vector<Budget>(past.size(), Budget{4, 2});
  }
  void observe(const StepReport& report) override {
    reports_.insert(reports_.end(), report.sequences.begin(), report.sequences.end());
  }

 private:
  std::vector<PastOnly>& past_;
  std::vector<SequenceReport>& reports_;
};

TEST_F(EngineScenario, absent_nodes_are_not_counted_as_drafted) {
  using nlohmann::json;
  std::vector<PastOnly> past;
  std::vector<SequenceReport> reports;
  registries.drafters.add("absent",
                          {"",
                           "",
                           {},
                           [](const json&, Host& h) { return std::make_unique<WithAbsent>(h.backend()); },
                           [](const json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}}; }});
  registries.policies.add("notes", {"",
                                    "",
                                    {},
                                    [&](const json&, Host&) { return std::make_unique<Notes>(past, reports); },
                                    [](const json&, const ModelInfo&) { return Budget{4, 2}; }});
  configs = {{{"name", "absent"}}, {{"name", "notes"}}, {{"name", "speculative_sampling"}}};
  const auto e = engine();
  e->submit(request({1, 2, 3}, 16));
  while (!e->idle()) e->step();
  ASSERT_GT(past.size(), 6u);
  ASSERT_EQ(past.size(), reports.size());
  for (std::size_t round = 0; round + 1 < past.size(); ++round) {
    const int drafted = past[round].room.depth < 2 ? 0 : 1;
    EXPECT_EQ(reports[round].drafted, drafted) << round;
    EXPECT_EQ(past[round + 1].drafted, drafted) << round;
    EXPECT_EQ(past[round + 1].accepted, reports[round].accepted) << round;
    EXPECT_LE(reports[round].depth, 1) << round;
  }
}

}  // namespace
}  // namespace foretoken::test

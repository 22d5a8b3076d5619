// Why rounds verified a bare root: every reason is reported, and a round with a draft has none.
#include <map>

#include "tests/framework/engine/engine_scenario.h"

namespace foretoken::test {
namespace {

// No draft in the first 20 rounds.
class Later : public LengthPolicy {
 public:
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (const PastOnly& p : past) all.push_back(p.rounds < 20 ? Budget{1, 0} : Budget{4, 3});
    return all;
  }
};

struct NoDrafts : EngineScenario {
  // Rounds by reason, of these requests served together.
  std::map<NoDraft, int> rounds(const std::vector<Request>& requests) {
    const auto e = engine();
    for (const Request& r : requests) e->submit(r);
    std::map<NoDraft, int> found;
    while (!e->idle())
      for (const SequenceReport& s : e->step().sequences) {
        if (!s.judged) continue;
        ++found[s.no_draft];
        EXPECT_EQ(s.no_draft == NoDraft::drafted, s.drafted > 0) << name_of(s.no_draft);
      }
    return found;
  }
  // The draft model's context.
  void draft_positions(int positions) {
    models.load = [positions](const ModelChoice& choice) {
      auto shorter = conformance::named_table(choice.directory, {.vocab = 5, .positions = 64});
      shorter.positions = positions;
      return std::make_shared<conformance::TableModel>(shorter);
    };
  }
};

TEST_F(NoDrafts, at_the_end_of_an_output_alone_are_no_shortage) {
  const auto found = rounds({request({1, 2}, 1), request({3}, 30)});
  EXPECT_GT(found.at(NoDraft::drafted), 0);
  EXPECT_GE(found.at(NoDraft::end), 1) << "an output of one token";
  for (const auto& [why, n] : found) EXPECT_TRUE(why == NoDraft::drafted || why == NoDraft::end) << name_of(why);
}

TEST_F(NoDrafts, behind_the_context_of_the_draft_model_are_said) {
  draft_positions(20);
  const auto found = rounds({request({1, 2, 3}, 50)});
  EXPECT_GT(found.at(NoDraft::drafted), 0);
  EXPECT_GT(found.at(NoDraft::context), 10);
}

// A block of 8 rows leaves the context before the output's end does.
TEST_F(NoDrafts, behind_the_room_for_a_block_are_of_the_context) {
  configs.drafter = {{"name", "dflash"}, {"head", {{"random", "small"}, {"block", 8}}}};
  configs.verifier = {{"name", "target_match"}};
  options.pages = 256;
  auto found = rounds({request({1, 2, 3}, 61)});
  EXPECT_GT(found[NoDraft::drafted], 0);
  EXPECT_GT(found[NoDraft::context], 0);
  EXPECT_EQ(found[NoDraft::nothing], 0);
}

TEST_F(NoDrafts, before_the_target_has_states_are_said) {
  for (const nlohmann::json& drafter : {nlohmann::json{{"name", "medusa"}, {"head", {{"random", "small"}}}},
                                        nlohmann::json{{"name", "eagle3"}, {"head", {{"random", "small"}}}},
                                        nlohmann::json{{"name", "dflash"}, {"head", {{"random", "small"}}}},
                                        nlohmann::json{{"name", "early_exit"}, {"layers", 0}}}) {
    configs.drafter = drafter, configs.verifier = {{"name", "target_match"}}, options.pages = 256;
    auto found = rounds({request({1, 2, 3}, 12), request({2, 1}, 12)});
    EXPECT_EQ(found[NoDraft::states], 2) << drafter;
    EXPECT_EQ(found[NoDraft::nothing], 0) << drafter;
    EXPECT_GT(found[NoDraft::drafted], 0) << drafter;
  }
}

TEST_F(NoDrafts, of_a_policy_that_asks_for_none_are_its_own) {
  configs.policy["length"] = 0;
  const auto found = rounds({request({1, 2, 3}, 10)});
  EXPECT_EQ(found.size(), 1u);
  EXPECT_EQ(found.at(NoDraft::policy), 10);
}

TEST_F(NoDrafts, of_a_drafter_that_finds_nothing_are_its_own) {
  configs.drafter = {{"name", "ngram"}, {"longest", 9}, {"shortest", 9}};
  EXPECT_GT(rounds({request({1, 2, 3}, 8)}).at(NoDraft::nothing), 5);
}

TEST_F(NoDrafts, where_a_step_has_no_rows_for_guesses_are_said) {
  options.step_rows = options.batch = 3;
  EXPECT_GT(rounds({request({1}, 12), request({2}, 12), request({3}, 12)}).at(NoDraft::rows), 5);
}

TEST_F(NoDrafts, where_the_draft_model_has_to_catch_up_are_said) {
  registries.policies.add("later", {"",
                                    "",
                                    {},
                                    [](const nlohmann::json&, Host&) { return std::make_unique<Later>(); },
                                    [](const nlohmann::json&, const ModelInfo&) { return Budget{4, 3}; }});
  configs.policy = {{"name", "later"}};
  options.step_rows = 8;
  const auto found = rounds({request({1, 2}, 40)});
  EXPECT_GE(found.at(NoDraft::policy), 20);
  EXPECT_GE(found.at(NoDraft::rows), 2) << "20 tokens and more are read by 8 in a step";
  EXPECT_GT(found.at(NoDraft::drafted), 0);
}

TEST_F(NoDrafts, where_the_pool_has_no_pages_are_said) {
  options.pages = 24;  // of two positions, for 24 tokens of the target and as many of the draft model
  EXPECT_GT(rounds({request({1, 2}, 40)}).at(NoDraft::pages), 5);
}

}  // namespace
}  // namespace foretoken::test

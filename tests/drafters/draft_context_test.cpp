// Draft trees beside the context of the draft model, which may be shorter than the target's.
#include <gtest/gtest.h>

#include "tests/drafters/recorded_trees.h"

namespace foretoken::test {
namespace {

using test::says;

// The scenario's models, but draft models have a context of 20 tokens.
Models with_a_short_draft(const TreeScenario& s) {
  Models models = table_models(s.target);
  models.load = [&s](const ModelChoice& choice) {
    TableModel::Options shorter = named_table(choice.directory, s.target);
    shorter.positions = 20;
    return std::make_shared<TableModel>(shorter);
  };
  return models;
}

TEST(DraftTree, refuses_a_shape_deeper_than_the_context_of_its_model) {
  TreeScenario s;
  const Models models = with_a_short_draft(s);
  const auto backend = make_reference_backend();
  const auto refusal = [&](int levels) {
    const Subject subject = s.subject({{"name", "draft_tree"},
                                       {"model", "table:other"},
                                       {"shape", std::vector<int>(std::size_t(levels), 1)},
                                       {"draws", "certain"}});
    return test::sentence_of(
        [&] { run_scenario({subject, {.engine = s.engine}, *backend, models, random_requests(1, 4, 4, 6, 9)}); });
  };
  EXPECT_EQ(refusal(19), "");
  EXPECT_TRUE(says(refusal(20), "the shape of the drafter 'draft_tree' has 20 levels below the root",
                   "20 tokens, can never hold; choose a shape of fewer levels"));
}

// A draft model's deepest fed node lies within its context, and at its end where the budget reaches there.
TEST(DraftTree, ends_where_the_context_of_its_model_ends) {
  TreeScenario s;
  const Models models = with_a_short_draft(s);
  int within = 0, beyond = 0, to_the_end = 0;
  const auto record = [&](Host&, std::span<const DraftRequest> asked, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const int length = asked[i].sequence->length(), nodes = trees[i].nodes;
      (length <= 20 ? within : beyond) += nodes > 1;
      int levels = 0;
      for (int n = nodes - 1; n > 0; n = *trees[i].parents.row<std::int32_t>(n)) ++levels;
      EXPECT_LE(levels, std::max(0, 21 - length));
      to_the_end += length <= 20 && levels == 21 - length;
    }
  };
  const auto backend = make_reference_backend();
  for (const char* name : {"draft_tree", "draft_dynamic"}) {
    within = 0, to_the_end = 0;
    run_scenario({watched(s.subject({{"name", name}, {"model", "table:other"}}), record),
                  {.engine = s.engine},
                  *backend,
                  models,
                  random_requests(4, 6, 10, 40, 9)});
    EXPECT_GT(within, 10);
    EXPECT_GT(to_the_end, 0);
    EXPECT_EQ(beyond, 0);
  }
}

}  // namespace
}  // namespace foretoken::test

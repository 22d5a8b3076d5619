// Any kind of model drafts for any kind of target of the same vocabulary: windows, biases, norms of heads, rotations,
// heads of any size, two caches of different shapes over one pool. Outputs are plain decoding's.
#include <gtest/gtest.h>

#include "experiments/conformance/laws.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

using namespace conformance;

namespace {

void expect_plain_texts(Backend& backend, const std::string& verifier, float temperature) {
  std::map<std::string, std::shared_ptr<Model>> by_name;
  for (const std::string& name : tiny_model_names()) by_name[name] = tiny_model(backend, name, "f32");
  const Scenario scenario{.sampling = {.temperature = temperature},
                          .engine = {.batch = 3, .step_rows = 32, .page_rows = 16, .pages = 64, .check = true}};
  long accepted_of_others = 0, rejected = 0;
  for (const auto& [target, model] : by_name)
    for (const auto& [draft, other] : by_name) {
      const Models models{model, [&](const ModelChoice&) { return other; }};
      const Subject pair{
          all_registries(),
          {{{"name", "draft_model"}, {"model", draft}}, {{"name", "fixed"}, {"length", 3}}, {{"name", verifier}}}};
      const Finding f =
          same_text({pair, scenario, backend, models, random_requests(4, model->info().vocab, 24, 20, 6)});
      EXPECT_TRUE(f.holds) << draft << " drafts for " << target << ": " << f.what;
      EXPECT_EQ(f.cases, 4);
      if (target == draft)
        EXPECT_GT(f.accepted, 0) << target;
      else
        accepted_of_others += f.accepted, rejected += f.rejected;
    }
  EXPECT_GT(accepted_of_others, 0);
  EXPECT_GT(rejected, 0);
}

TEST(Pairs, GreedyTextIsPlainDecodingsOnTheReference) {
  ReferenceBackend reference;
  expect_plain_texts(reference, "speculative_sampling", 0);
}

TEST(Pairs, GreedyTextIsPlainDecodingsOnTheFastBackend) {
  expect_plain_texts(*cpu_backend(1), "speculative_sampling", 0);
}
TEST(Pairs, CoupledTextIsPlainDecodingsOnTheFastBackend) { expect_plain_texts(*cpu_backend(1), "coupled", 0.8f); }

}  // namespace
}  // namespace foretoken::test

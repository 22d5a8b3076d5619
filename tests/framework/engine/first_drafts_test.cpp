// A run whose first drafts are accepted far less often than their own probabilities expect says so; another does not.
#include <gtest/gtest.h>

#include "experiments/conformance/devices.h"
#include "experiments/conformance/scenario.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using namespace conformance;

struct Doubted {
  std::string doubt;
  int waits = 0;
};

Doubted after_run(const std::string& model, float temperature, int requests,
                  const std::string& verifier = "speculative_sampling") {
  const Subject subject{
      all_registries(),
      {{{"name", "draft_model"}, {"model", model}}, {{"name", "fixed"}, {"length", 3}}, {{"name", verifier}}}};
  Doubted found;
  SimulatedDevice device;
  (void)run_scenario({subject,
                      {.sampling = {.temperature = temperature},
                       .engine = {.batch = 8, .step_rows = 256, .page_rows = 4, .pages = 512}},
                      device,
                      table_models({.vocab = 40, .order = 2, .seed = 5, .positions = 128}),
                      random_requests(requests, 40, 10, 30, 3)},
                     [&](Engine& e, const StepReport& r, auto) {
                       found.doubt = e.doubt(), found.waits = std::max(found.waits, r.waits);
                     });
  return found;
}

TEST(FirstDrafts, ThatAreRefusedFarTooOftenSayWhatIsUsuallyWrong) {
  const Doubted found = after_run("table:far", 0, 24);
  EXPECT_TRUE(says(found.doubt, "the drafter 'draft_model' had", "of its first", "off by a layer", "norm", "rotary"))
      << found.doubt;
  EXPECT_EQ(found.waits, 1) << "what is measured comes with the verdicts";
}

TEST(FirstDrafts, OfADraftThatIsWhatItSaysAreNotDoubted) {
  for (const float temperature : {0.0f, 0.7f, 1.0f})
    for (const char* model : {"table:same", "table:other", "table:uniform"})
      EXPECT_EQ(after_run(model, temperature, 24).doubt, "") << model << " at " << temperature;
}

TEST(FirstDrafts, FewOrThoseOfAVerifierThatRefusesByOtherRulesSayNothing) {
  EXPECT_EQ(after_run("table:far", 0, 1).doubt, "");
  EXPECT_EQ(after_run("table:far", 0, 24, "synthetic").doubt, "");
}

// What is expected is what the draft gave its tokens, whatever the draws: here always less than is accepted.
TEST(FirstDrafts, AreCountedOncePerRoundAndThenNoMore) {
  FirstDrafts drafts;
  Readback read{.verdicts = Tensor::host({2, std::int64_t(sizeof(Verdict))}, DType::u8),
                .tokens = {},
                .ranks = {},
                .sums = {},
                .chances = Tensor::host({2}, DType::f32)};
  for (const int i : {0, 1}) {
    Verdict& v = *new (read.verdicts.row<std::uint8_t>(i)) Verdict();
    v.next = 1, v.length = 0;
  }
  read.chances.row<float>(0)[0] = 0.5f, read.chances.row<float>(0)[1] = -1;  // no draft
  for (int round = 0; round < FirstDrafts::kTests; ++round) {
    EXPECT_FALSE(drafts.measured());
    EXPECT_EQ(drafts.doubt("d"), "");
    drafts.add(read);
  }
  EXPECT_TRUE(drafts.measured());
  EXPECT_TRUE(says(drafts.doubt("d"), "d had 0 of its first 200 drafts accepted", "expect 100"));
}

}  // namespace
}  // namespace foretoken::test

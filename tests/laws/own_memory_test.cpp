// Drafters on a device with separate memory, where the host reads drawn tokens once a step. Their caches must keep the
// same rows as elsewhere, or drafters recompute rows that they have.
#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/devices.h"
#include "experiments/conformance/laws.h"
#include "tests/laws/private_trees.h"
#include "tests/laws/subjects.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

Subject subject(const Registries& registries, const json& drafter, int length = 4) {
  return {registries, {drafter, {{"name", "fixed"}, {"length", length}}, {{"name", "speculative_sampling"}}}};
}

Finding on_a_device(const Subject& s, float temperature) {
  ReferenceBackend reference;
  SimulatedDevice device;
  return same_on_devices({s,
                          {.sampling = {.temperature = temperature}},
                          reference,
                          table_models({.vocab = 5, .order = 1, .seed = 95}),
                          random_requests(8, 5, 10, 24, 12)},
                         device);
}

TEST(OwnMemory, EverySubjectSaysAndFeedsTheSame) {
  const Registries all = with_scripted(all_registries());
  for (const Subject& s : subjects(all, 4))
    for (const float temperature : {0.0f, 1.0f}) {
      const Finding f = on_a_device(s, temperature);
      EXPECT_TRUE(f.holds) << f.what;
    }
}

TEST(OwnMemory, ADrafterThatKeepsItsTreesToItselfFeedsTheSame) {
  for (const char* model : {"table:same", "table:other"})
    for (const float temperature : {0.0f, 1.0f}) {
      const Finding f =
          on_a_device(subject(with_private_trees(), {{"name", "private"}, {"model", model}}), temperature);
      EXPECT_TRUE(f.holds) << f.what;
      EXPECT_GT(f.accepted, 0);
    }
}

// A chain of d nodes needs d rows, root included, and one more if the last node of the previous round was accepted.
TEST(OwnMemory, ADraftModelIsFedNoRowTwice) {
  for (const json& drafter :
       {json{{"name", "draft_model"}, {"model", "table:same"}}, json{{"name", "private"}, {"model", "table:same"}}}) {
    SimulatedDevice device;
    const Scenario roomy{.engine = {.batch = 4, .step_rows = 256, .page_rows = 2, .pages = 1024, .check = true}};
    std::uint64_t before = 0;
    int rounds = 0;
    const auto count = [&](Engine& engine, const StepReport& report, std::span<const Sequence* const>) {
      std::uint64_t rows = 0, needed = 0;
      for (const auto& c : engine.host().caches()) rows += c->books()->totals().rows;
      for (const SequenceReport& r : report.sequences)
        needed += std::uint64_t(r.prompt_rows + (r.drafted > 0 ? r.drafted + 1 : 0)), rounds += r.drafted > 0;
      EXPECT_LE(rows - before, needed) << "in a step of " << report.sequences.size() << " sequences";
      before = rows;
    };
    (void)run_scenario({subject(with_private_trees(), drafter), roomy, device,
                        table_models({.vocab = 5, .order = 1, .seed = 95}), random_requests(8, 5, 10, 40, 12)},
                       count);
    EXPECT_GT(rounds, 40);
  }
}

}  // namespace
}  // namespace foretoken::test

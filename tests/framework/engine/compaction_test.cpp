// KV compaction in an engine: what all sequences and caches of a step move, they move together.
#include <set>

#include "kernels/reference/reference_backend.h"
#include "tests/framework/engine/engine_scenario.h"

namespace foretoken::test {
namespace {

// Counts the calls by which rows are moved.
class Counting final : public ReferenceBackend {
 public:
  void move(std::span<const Moves> moves) override {
    ++calls, tables = moves.size();
    for (const Moves& m : moves) caches.insert(m.layers.data());
    ReferenceBackend::move(moves);
  }

  int calls = 0;
  std::size_t tables = 0;  // block tables of the last call
  std::set<const KvLayer*> caches;
};

// Steps in which rows of many sequences moved, and of the target's and the draft's caches.
int steps_of_many(EngineScenario& s, Counting& backend, int sequences) {
  const auto e = std::make_unique<Engine>(backend, s.models.target, s.registries, s.configs, s.options, s.models.load);
  for (int i = 0; i < sequences; ++i) e->submit(EngineScenario::request({1 + i % 4, 2, 3}, 40));
  int found = 0;
  while (!e->idle()) {
    backend.calls = 0, backend.tables = 0, backend.caches.clear();
    const StepReport report = without_failures(e->step());
    EXPECT_LE(backend.calls, 1) << report.sequences.size() << " sequences";
    EXPECT_LE(backend.tables, 2 * std::size_t(sequences));
    found += backend.caches.size() == 2 && backend.tables >= 2 + std::size_t(sequences) / 4;
  }
  return found;
}

TEST_F(EngineScenario, all_sequences_and_caches_of_a_step_move_rows_by_one_call) {
  configs.drafter = {{"name", "draft_tree"}, {"model", "table:other"}, {"shape", {3, 2, 1}}};
  configs.policy = {{"name", "fixed"}, {"length", 3}, {"nodes", 16}};
  options = {.batch = 12, .step_rows = 512, .page_rows = 2, .pages = 4096, .check = true};
  for (const int sequences : {1, 4, 12}) {
    Counting backend;
    EXPECT_GT(steps_of_many(*this, backend, sequences), 0) << sequences << " sequences";
  }
}

}  // namespace
}  // namespace foretoken::test

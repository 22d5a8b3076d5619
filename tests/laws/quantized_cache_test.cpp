// The laws of outputs, batches and caches where keys and values are codes: of the target and of drafters' models, each
// of another type; with chunked prompts, prefixes, preemption, trees, compaction, and a window.
#include <ostream>

#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/laws.h"
#include "kernels/reference/reference_backend.h"
#include "tests/laws/subjects.h"
#include "tests/laws/tree_is_chain.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

using namespace conformance;

namespace {

// Device, types of the caches, target. The target "mistral" has a window of 9.
struct Case {
  std::string device;
  TinyModels models;
  std::string name() const {
    return device + "_" + models.target + "_" + models.kv_dtype + "_" + models.draft_kv_dtype;
  }
};
void PrintTo(const Case& c, std::ostream* to) { *to << c.name(); }

class QuantizedCache : public ::testing::TestWithParam<Case> {
 protected:
  QuantizedCache() {
    if (GetParam().device == "cpu")
      backend = cpu_backend(2);
    else
      backend = std::make_unique<ReferenceBackend>();
    models = tiny_models(*backend, GetParam().models);
  }
  // Drafters of every kind: trees and chains of a model, and those without one. What selects pages refuses a window.
  std::vector<Subject> all() const {
    std::vector<Subject> found = subjects(all_registries(), 3);
    if (models.target->info().kv.window("") > 0)
      std::erase_if(found, [](const Subject& s) {
        return s.registries.drafters.traits(s.configs.drafter, ModelInfo()).page_bounds;
      });
    return found;
  }
  std::vector<TestRequest> requests(int count, std::uint64_t seed) const {
    auto all = random_requests(count, models.target->info().vocab, 16, 14, seed);
    for (std::size_t i = 2; i < all.size(); i += 2)  // common beginnings, so that prefixes are found
      all[i].prompt.insert(all[i].prompt.begin(), all[0].prompt.begin(), all[0].prompt.end());
    return all;
  }

  std::unique_ptr<HostBackend> backend;
  Models models;
};

TEST_P(QuantizedCache, GreedyOutputIsPlainDecodings) {
  long accepted = 0, rejected = 0;
  for (const Subject& s : all()) {
    const Finding f = same_text({s,
                                 {.sampling = {.temperature = 0},
                                  .engine = {.batch = 3, .step_rows = 40, .page_rows = 5, .pages = 256, .check = true}},
                                 *backend,
                                 models,
                                 requests(4, 2)});
    EXPECT_TRUE(f.holds) << f.what;
    accepted += f.accepted, rejected += f.rejected;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

TEST_P(QuantizedCache, OutputIsTheSameInEveryBatch) {
  const Scenario alone{.sampling = {.temperature = 0},
                       .engine = {.batch = 1, .step_rows = 512, .page_rows = 4, .pages = 512, .check = true}};
  BatchCase c{{}, true};
  for (const EngineOptions& e : {EngineOptions{.batch = 5, .step_rows = 9, .page_rows = 4, .pages = 256, .check = true},
                                 {.batch = 4, .step_rows = 40, .page_rows = 4, .pages = 24, .check = true}})
    c.batches.push_back({.sampling = alone.sampling, .engine = e});
  long preempted = 0, prefix_rows = 0;
  for (const Subject& s : all()) {
    Finding f = batch({s, alone, *backend, models, requests(6, 5)}, c);
    EXPECT_TRUE(f.holds) << f.what.substr(0, 800);
    preempted += f.seen["preemptions"], prefix_rows += f.seen["prefix rows"];
  }
  EXPECT_GT(preempted, 0);
  EXPECT_GT(prefix_rows, 0);
}

TEST_P(QuantizedCache, CachesHoldWhatAPrefillHolds) {
  long accepted = 0, rejected = 0;
  for (const Subject& s : all()) {
    const Finding f = cache({s,
                             {.sampling = {.temperature = 0.4f},
                              .engine = {.batch = 3, .step_rows = 32, .page_rows = 5, .pages = 256, .check = true}},
                             *backend,
                             models,
                             requests(3, 7)});
    EXPECT_TRUE(f.holds) << f.what.substr(0, 800);
    accepted += f.accepted, rejected += f.rejected;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

TEST_P(QuantizedCache, NodesOfTreesAreTheirPaths) {
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    const Finding f = tree_is_chain(*backend, models.target, 30, seed);
    EXPECT_TRUE(f.holds) << f.what;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, QuantizedCache,
                         ::testing::Values(Case{"reference", {"bf16", "int8", "fp8"}},
                                           Case{"cpu", {"bf16", "fp8", "int8"}}, Case{"cpu", {"bf16", "bf16", "int8"}},
                                           Case{"cpu", {"mistral", "int8", "bf16"}}),
                         [](const auto& i) { return i.param.name(); });

}  // namespace
}  // namespace foretoken::test

// Engines of a target divided among two GPUs decode what one GPU does.
#include <gtest/gtest.h>

#include "experiments/session/run_document.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/measure.h"
#include "kernels/cuda/cuda_backend.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

TEST(TwoGpus, DecodeWhatOneDoes) {
  if (cuda_devices() < 2) GTEST_SKIP() << "needs two GPUs";
  Workbench bench;
  const auto outputs = [&](json changes) {
    json document = {{"target", {{"model", "experiments/models/target"}}},
                     {"drafter", {{"name", "draft_model"}, {"model", "experiments/models/draft"}}},
                     {"policy", {{"length", 3}}},
                     {"engine", {{"batch", 4}, {"device", "cuda"}, {"numerics", "invariant"}, {"check", true}}},
                     {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", 24}, {"max_new_tokens", 48}}}};
    document.merge_patch(changes);
    const json run = complete_run(document, bench.registries(), "test");
    const auto engine = bench.engine(run, Side::speculative, "");
    return measure(*engine, jobs_of(run, bench, ""), 4, [](double) {}).outputs;
  };
  const json two{{"parallel", {{"tensor", 2}}}};
  const auto one_gpu = outputs(json::object()), two_gpus = outputs(two);
  ASSERT_EQ(one_gpu.size(), two_gpus.size());
  EXPECT_EQ(outputs(two), two_gpus);  // the same again
  // Sums have another order, so two nearly equal tokens may change places.
  std::size_t apart = 0;
  for (std::size_t i = 0; i < one_gpu.size(); ++i) apart += one_gpu[i] != two_gpus[i];
  EXPECT_LE(apart, one_gpu.size() / 4) << apart << " of " << one_gpu.size() << " outputs";
}

}  // namespace
}  // namespace foretoken::test

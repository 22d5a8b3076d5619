#include "experiments/sweep/prepared.h"

#include "experiments/sweep/interrupt.h"
#include "experiments/sweep/learning.h"
#include "experiments/sweep/measure.h"

namespace foretoken {

using nlohmann::json;

namespace {

// Whether speculation must give plain decoding's output, token by token: at temperature 0, or with a path-identical
// verifier.
bool comparable(const json& run, const Soundness& soundness) {
  return run["sampling"]["temperature"] == 0 || soundness.path_identical();
}

Prepared of_engine(const json& run, Workbench& bench, const std::filesystem::path& beside) {
  const auto engine = bench.engine(run, Side::speculative, beside);
  const ModelInfo& target = engine->target().info();
  expect_start(run, engine->learns());
  return {jobs_of(run, bench, beside),
          {{"promise", engine->soundness().promise},
           {"target", {{"name", target.name}, {"vocab", target.vocab}, {"weight_bytes", target.weight_bytes}}},
           {"compared", comparable(run, engine->soundness())},
           {"learns", engine->learns()}}};
}

}  // namespace

std::string baseline_of(json run) {
  run.erase("drafter"), run.erase("policy"), run.erase("trace");
  if (run.contains("workload")) run["workload"].erase("start");
  return run.dump();
}

Prepared prepare(const Run& run, Workbench& bench, const std::filesystem::path& beside) {
  const json& document = run.document;
  Prepared prepared = of_engine(document, bench, beside);
  if (!document["measure"]["warmup"].get<bool>() || !bench.backend(document["engine"]).records()) return prepared;
  // It also loads kernels, and chooses those of products, when it first gets a size.
  const auto serve = [&](Side side) {
    measure(*bench.engine(document, side, beside), prepared.jobs, document["engine"]["batch"].get<int>(),
            [](double) { check_interrupt(); });
  };
  if (bench.is_first(baseline_of(document))) serve(Side::baseline);
  serve(Side::speculative);
  return prepared;
}

}  // namespace foretoken

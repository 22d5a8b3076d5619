#include "experiments/sweep/prepared.h"

#include <utility>

#include "experiments/sweep/learning.h"

namespace foretoken {

using nlohmann::json;

namespace {

// Whether speculation must give plain decoding's output, token by token: at temperature 0, or with a path-identical
// verifier.
bool comparable(const json& run, const Soundness& soundness) {
  return run["sampling"]["temperature"] == 0 || soundness.path_identical();
}

}  // namespace

Prepared prepare(const Run& run, Workbench& bench, const std::filesystem::path& beside) {
  const json& document = run.document;
  const auto engine = bench.engine(document, Side::speculative, beside);
  const ModelInfo& target = engine->target().info();
  expect_start(document, engine->learns());
  std::vector<Job> jobs = jobs_of(document, bench, beside), before = jobs_before(document, jobs, bench, beside);
  return {std::move(jobs),
          std::move(before),
          {.promise = engine->soundness().promise,
           .target = {.name = target.name, .vocab = target.vocab, .weight_bytes = target.weight_bytes},
           .compared = comparable(document, engine->soundness()),
           .learns = engine->learns()}};
}

}  // namespace foretoken

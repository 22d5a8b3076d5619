// Runs of the demo models with and without a trace, for tests.
#pragma once
#include <string>
#include <utility>

#include "experiments/report/results.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/runner.h"
#include "experiments/sweep/tracing.h"
#include "experiments/trace/replay.h"
#include "tests/experiments/sweep/demo_models.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {

using nlohmann::json;

// The run of the tests, with changes.
inline json demo_run(const json& changes) {
  json run = demo_models();
  run.merge_patch({{"policy", {{"length", 8}}}, {"engine", {{"batch", 1}}}, {"workload", {{"max_new_tokens", 24}}}});
  for (const auto& [key, value] : changes.items())
    if (value.is_object() && value.contains("name"))
      run[key] = value;  // another component, without the options of this one
    else
      run.merge_patch({{key, value}});
  return run;
}

class TracedRuns {
 public:
  json complete(const json& changes) const { return complete_run(demo_run(changes), bench.registries(), "test"); }

  // Records the run in a file of the folder.
  std::filesystem::path record(const json& changes, const std::string& name = "trace.jsonl") {
    json with = changes;
    if (!with.contains("trace")) with["trace"] = {{"dense", true}};
    with["trace"]["file"] = (folder.path() / name).string();
    const json run = complete(with);
    Result result;
    result.run = run;
    result.key = key_of(run);
    result.origin.machine.emplace();
    record_trace(folder.path() / name, result, jobs_of(run, bench, ""), bench, "");
    return folder.path() / name;
  }
  Trace traced(const json& changes) { return read_trace(record(changes)); }

  // What an engine really does.
  Measured measured(const json& changes, Side side = Side::speculative) {
    return measured(changes, bench.registries(), side);
  }
  Measured measured(const json& changes, const Registries& registries, Side side = Side::speculative) {
    const json run = complete_run(demo_run(changes), registries, "test");
    const auto engine = bench.engine(run, side, "", registries);
    return measure(*engine, jobs_of(run, bench, ""), run["engine"]["batch"].get<int>(), [](double) {});
  }

  Workbench bench;
  TemporaryFolder folder;
};

// Tokens and rounds of a measurement.
inline std::pair<double, double> tokens_and_rounds(const Measured& m) {
  return {to_json(m.record)["tokens"].get<double>(), to_json(m.record)["rounds"].get<double>()};
}

}  // namespace foretoken::test

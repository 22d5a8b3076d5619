#include "experiments/sweep/tracing.h"

#include <algorithm>
#include <cstdio>

#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "experiments/trace/recorder.h"

namespace foretoken {

using nlohmann::json;

namespace {

json header_of(const Result& result, const Recording& recording, Engine& engine, const Registries& registries) {
  const json line = to_json(result);
  json header;
  for (const char* field : {"key", "run", "commit", "version", "compiler", "date", "machine", "sources"})
    header[field] = line.at(field);
  const Budget most = registries.policies.traits(line["run"]["policy"], engine.target().info()).most;
  header["budget"] = {std::min(most.nodes, kMaxNodes), std::min(most.depth, kMaxPath)};
  header["dense"] = recording.dense, header["race"] = engine.soundness().race;
  header["learns"] = engine.needs().learns;
  header["positions"] = engine.target().info().positions;
  return header;
}

}  // namespace

void record_trace(const std::filesystem::path& file, const Result& result, const std::vector<Job>& jobs,
                  Workbench& bench, const std::filesystem::path& beside) {
  const json& run = result.run;
  const json& trace = run.at("trace");
  const Recording recording{trace.at("dense"), trace.at("verifiers")};
  const int batch = run.at("engine").at("batch");
  std::map<std::uint64_t, Recorder::Request> by_stream;
  std::vector<TracedRequest> requests;
  for (const Job& job : jobs) {
    by_stream[job.request.stream] = {int(requests.size()), int(job.request.prompt.size())};
    requests.push_back({job.prompt, job.category, int(job.request.prompt.size()), job.request.limits.max_new_tokens});
  }
  Recorder recorder(recording, std::move(by_stream));
  const Registries registries = recorder.recording(bench.registries(), run.at("verifier"));
  auto engine = bench.engine(run, Side::speculative, beside, registries);
  TraceWriter writer(file, header_of(result, recording, *engine, bench.registries()), requests);
  const auto interruptible = [](double) { check_interrupt(); };
  measure(*engine, jobs, batch, interruptible, [&](const StepReport& r) { writer.append(recorder.step(r, false)); });
  engine.reset();  // the other needs its memory
  measure(*bench.engine(run, Side::baseline, beside), jobs, batch, interruptible,
          [&](const StepReport& r) { writer.append(recorder.step(r, true)); });
  writer.close(recorder.failed());
  if (const std::size_t failed = recorder.failed().size(); failed > 0)
    std::fprintf(stderr, "foretoken: %zu of %zu requests failed while %s was recorded, and are left out of it\n",
                 failed, jobs.size(), one_line(file.string()).c_str());
}

}  // namespace foretoken

#include "experiments/sweep/soak.h"

#include <cstdio>
#include <fstream>

#include <malloc.h>
#include <unistd.h>

#include "experiments/report/machine.h"
#include "experiments/report/results.h"
#include "experiments/report/statistics.h"
#include "experiments/report/table.h"
#include "experiments/report/terminal.h"
#include "experiments/sweep/interrupt.h"
#include "experiments/sweep/run_document.h"
#include "experiments/sweep/runner.h"
#include "experiments/sweep/workbench.h"
#include "experiments/sweep/workload.h"
#include "foretoken_version.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
constexpr int kParts = 20;

double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  long pages = 0, resident = 0;
  statm >> pages >> resident;
  return double(resident) * double(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// Bytes allocated and not freed; unlike resident memory, without free space between blocks.
double allocated_mib() {
  const struct mallinfo2 m = mallinfo2();
  return double(m.uordblks + m.hblkhd) / (1 << 20);
}

// One twentieth of the requests.
struct Part {
  long finished = 0, steps = 0, tokens = 0;  // since the beginning
  double step_ms = 0, host_ms = 0;           // medians of its steps: whole, and outside forwards
  double memory_mib = 0, allocated_mib = 0;
  int pages = 0, waiting = 0;
};

void queue_all(Engine& engine, const std::vector<Job>& jobs, int requests) {
  for (int i = 0; i < requests; ++i) {
    const std::size_t n = std::size_t(i);
    Request r = jobs[n % jobs.size()].request;
    r.stream |= stream_of(0, 0, n / jobs.size());  // each request has its own draws
    engine.submit(std::move(r));
  }
}

std::vector<Part> serve(Engine& engine, int requests) {
  std::vector<Part> parts;
  std::vector<double> whole, host;
  Part now;
  watch_interrupts();
  while (!engine.idle()) {
    check_interrupt();
    const StepReport r = without_failures(engine.step());
    ++now.steps, now.finished += long(r.finished.size());
    for (const SequenceReport& s : r.sequences) now.tokens += long(s.emitted.size());
    whole.push_back(1e3 * r.phases.total), host.push_back(1e3 * r.phases.overhead());
    if (now.finished < (long(parts.size()) + 1) * requests / kParts) continue;
    now.step_ms = median(std::move(whole)), now.host_ms = median(std::move(host));
    now.memory_mib = resident_mib(), now.allocated_mib = allocated_mib(), now.pages = r.pages_in_use,
    now.waiting = r.waiting;
    parts.push_back(now);
    whole.clear(), host.clear();
  }
  return parts;
}

json as_json(const std::vector<Part>& parts) {
  json all = json::array();
  for (const Part& p : parts)
    all.push_back({{"finished", p.finished},
                   {"steps", p.steps},
                   {"tokens", p.tokens},
                   {"step_ms", p.step_ms},
                   {"host_ms", p.host_ms},
                   {"memory_mib", p.memory_mib},
                   {"allocated_mib", p.allocated_mib},
                   {"pages", p.pages},
                   {"waiting", p.waiting}});
  return all;
}

Table table_of(const std::vector<Part>& parts) {
  Table t{"Endurance",
          "",
          {{"finished", "finished", "requests that are done"},
           {"waiting", "waiting", ""},
           {"steps", "steps", "since the beginning"},
           {"step ms", "step_ms", "median of this twentieth's steps"},
           {"host ms", "host_ms", "of the step outside forwards"},
           {"memory", "memory_mib", "resident MiB of the process"},
           {"allocated", "allocated_mib", "MiB that the program has allocated, queued requests included"},
           {"pages", "pages", "of the pool, in use after the step, cached prefixes included"}},
          {}};
  for (const Part& p : parts)
    t.rows.push_back(
        {{Cell::of(double(p.finished), 0), Cell::of(p.waiting, 0), Cell::of(double(p.steps), 0), Cell::of(p.step_ms, 3),
          Cell::of(p.host_ms, 3), Cell::of(p.memory_mib, 2), Cell::of(p.allocated_mib, 2), Cell::of(p.pages, 0)},
         "",
         false});
  return t;
}

}  // namespace

int run_soak(const SoakOptions& options) {
  BenchFile results(options.results, "soak");
  Workbench bench;
  const std::filesystem::path beside = std::filesystem::path(options.file).parent_path();
  const json run = complete_run(read_document(options.file), bench.registries(), options.file);
  if (run["workload"]["turns"] != 1)
    throw Error(options.file + ": a soak serves requests whose prompts are known; set '/workload/turns' to 1");
  const std::unique_ptr<Engine> engine = bench.engine(run, Side::speculative, beside);
  queue_all(*engine, jobs_of(run, bench, beside), options.requests);
  const std::vector<Part> parts = serve(*engine, options.requests);
  const json line{{"soak", as_json(parts)},
                  {"requests", options.requests},
                  {"run", run},
                  {"machine", to_json(machine_of(bench.backend(run["engine"])))},
                  {"commit", kCommit},
                  {"date", utc_now()}};
  results.append(line);
  const Table table = table_of(parts);
  print(options.json ? line.dump() : table.terminal(0) + "\n" + legend({table}, 0, false));
  return 0;
}

}  // namespace foretoken

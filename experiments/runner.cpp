#include "experiments/runner.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>

#include "experiments/interrupt.h"
#include "experiments/progress.h"
#include "experiments/results.h"
#include "experiments/workload.h"
#include "foretoken_version.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

std::string now_utc() {
  const std::time_t t = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&t));
  return text;
}

// Whether speculation must print what plain decoding prints, token by token.
bool comparable(const json& run, const Soundness& soundness) {
  return run["sampling"]["temperature"] == 0 || soundness.promise.find("path-identical") != std::string::npos;
}

long differing(const std::vector<std::vector<Token>>& a, const std::vector<std::vector<Token>>& b) {
  long n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) n += a[i] != b[i];
  return n;
}

void warm_up(const json& run, Workbench& bench, std::vector<Job> jobs) {
  if (!run["measure"]["warmup"].get<bool>()) return;
  jobs.resize(std::min(jobs.size(), std::size_t(run["engine"]["batch"].get<int>())));
  for (Job& j : jobs) j.request.limits.max_new_tokens = std::min(j.request.limits.max_new_tokens, 8);
  for (const bool plain : {true, false}) measure(*bench.engine(run, plain), jobs, run["engine"]["batch"], [](double) { check_interrupt(); });
}

// The alternations of a run. Every measurement begins with empty caches.
void alternate(const json& run, Workbench& bench, const std::vector<Job>& jobs, const std::function<void(double)>& progress, json& line) {
  const int repeats = run["measure"]["repeats"], batch = run["engine"]["batch"];
  long compared = 0, different = 0;
  for (int i = 0; i < repeats; ++i) {
    Measured both[2];  // baseline, speculation
    for (int k = 0; k < 2; ++k) {
      const bool plain = (i + k) % 2 == 0;
      const auto engine = bench.engine(run, plain);
      const double before = (2.0 * i + k) / (2.0 * repeats);
      both[plain ? 0 : 1] = measure(*engine, jobs, batch, [&](double part) {
        check_interrupt();
        progress(before + part / (2.0 * repeats));
      });
    }
    line["repeats"].push_back({{"baseline", both[0].measure}, {"speculative", both[1].measure}});
    compared += long(jobs.size());
    different += differing(both[0].texts, both[1].texts);
  }
  const bool compare = line["agreement"]["compared"];
  line["agreement"]["compared_texts"] = compare ? compared : 0;
  line["agreement"]["differing_texts"] = compare ? different : 0;
}

}  // namespace

std::vector<Job> jobs_of(const json& run, Workbench& bench, const std::filesystem::path& beside) {
  const json& w = run["workload"];
  const auto prompts = choose_prompts(read_prompts(locate(w["prompts"], beside)), w["categories"], w["limit"]);
  const json& e = run["engine"];
  const auto model = bench.model(bench.backend(e["device"], e["threads"]), run["target"]["model"], run["target"]["dtype"], run["target"]["kv_dtype"]);
  const auto tokenizer = bench.tokenizer(run["target"]["model"]);
  const std::size_t wanted = std::max(prompts.size(), std::size_t(4 * e["batch"].get<int>()));
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < wanted; ++i) {
    const Prompt& p = prompts[i % prompts.size()];
    const std::uint64_t sample = i / prompts.size();
    jobs.push_back({request_of(run, model->info(), tokenizer, p.text, sample << 32 | std::uint64_t(p.number)), p.number, p.category});
  }
  return jobs;
}

json run_cell(const Cell& cell, Workbench& bench, const std::filesystem::path& beside, const std::function<void(double)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  json line{{"schema", kResultSchema}, {"key", cell.key}, {"run", cell.run}, {"axes", cell.axes}, {"commit", kCommit}, {"version", kVersion},
            {"compiler", kCompiler}, {"date", now_utc()}};
  try {
    const json& e = cell.run["engine"];
    Backend& backend = bench.backend(e["device"], e["threads"]);
    line["machine"] = machine(backend);
    line["device"] = backend.name();
    const auto engine = bench.engine(cell.run, false);
    const ModelInfo& target = engine->target().info();
    line["promise"] = engine->soundness().promise;
    line["target"] = {{"name", target.name}, {"vocab", target.vocab}, {"weight_bytes", target.weight_bytes}};
    line["agreement"] = {{"compared", comparable(cell.run, engine->soundness())}, {"compared_texts", 0}, {"differing_texts", 0}};
    const auto jobs = jobs_of(cell.run, bench, beside);
    warm_up(cell.run, bench, jobs);
    alternate(cell.run, bench, jobs, progress, line);
  } catch (const Error& e) {
    line.erase("repeats");
    line["error"] = e.what();
  }
  line["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return line;
}

SweepOutcome run_sweep(const std::vector<Cell>& cells, Workbench& bench, const std::filesystem::path& beside, const SweepOptions& options) {
  ResultsFile file(options.results);
  {
    Progress progress(options.title, int(cells.size()));
    int done = 0;
    for (const Cell& cell : cells) {
      check_interrupt();
      if (!file.has(cell.key)) {
        const std::string note = cell.run["drafter"]["name"].get<std::string>() + " " + cell.axes.dump();
        progress.show(done, note);
        const json line = run_cell(cell, bench, beside, [&](double part) { progress.show(done, note, part); });
        file.append(line);
        if (line.contains("error")) spdlog::error("run {} {} failed: {}", cell.key, cell.axes.dump(), line["error"].get<std::string>());
      }
      progress.show(++done, "");
    }
  }
  SweepOutcome out;
  out.results = file.path();
  std::map<std::string, json> latest;
  for (json& line : load_results(file.path())) latest[line["key"].get<std::string>()] = std::move(line);
  for (const Cell& cell : cells) {
    const json& line = out.lines.emplace_back(std::move(latest[cell.key]));
    out.failed += line.contains("error") || line.at("agreement").at("differing_texts") != 0;
  }
  return out;
}

}  // namespace foretoken

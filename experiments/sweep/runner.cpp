#include "experiments/sweep/runner.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <new>

#include <spdlog/spdlog.h>

#include "experiments/report/machine.h"
#include "experiments/report/results.h"
#include "experiments/report/summary.h"
#include "experiments/sweep/interrupt.h"
#include "experiments/sweep/progress.h"
#include "experiments/sweep/provenance.h"
#include "experiments/sweep/tracing.h"
#include "foretoken_version.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

// Whether speculation must give plain decoding's output, token by token: at temperature 0, or with a path-identical
// verifier.
bool comparable(const json& run, const Soundness& soundness) {
  return run["sampling"]["temperature"] == 0 || soundness.path_identical();
}

// Outputs of both sides that were compared, and that differ. A request that failed on one side is not compared.
struct Agreement {
  long compared = 0, different = 0;
  void add(const Measured& a, const Measured& b) {
    for (std::size_t i = 0; i < a.texts.size(); ++i) {
      if (!a.failures[i].empty() || !b.failures[i].empty()) continue;
      ++compared, different += a.texts[i] != b.texts[i];
    }
  }
};

// Records the failed requests. If all of one side failed, nothing was measured, which is an Error.
void note_failures(const Measured& m, const std::vector<Job>& jobs, const char* side, int repeat, json& line) {
  std::size_t failed = 0;
  const std::string* first = nullptr;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (m.failures[i].empty()) continue;
    if (failed++ == 0) first = &m.failures[i];
    line["failures"].push_back(
        {{"request", i}, {"prompt", jobs[i].prompt}, {"side", side}, {"repeat", repeat}, {"failure", m.failures[i]}});
  }
  if (failed == jobs.size() && first)
    throw Error("all " + std::to_string(failed) + " requests failed (" + side + "); the first: " + *first);
}

// The fields that determine a baseline: all except drafter and policy.
std::string baseline_of(json run) {
  run.erase("drafter"), run.erase("policy");
  return run.dump();
}

void warm_up(const json& run, Workbench& bench, const std::filesystem::path& beside, const std::vector<Job>& jobs,
             bool baseline) {
  if (!run["measure"]["warmup"].get<bool>()) return;
  const std::size_t batch = run["engine"]["batch"];
  const std::vector<Job> few = warm_up_jobs(jobs, batch);
  for (const Side side : {Side::baseline, Side::speculative})
    if (baseline || side == Side::speculative)
      measure(*bench.engine(run, side, beside), few, int(batch), [](double) { check_interrupt(); });
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The alternations of a run. Every measurement has a fresh engine, so none reuses another's prefixes.
void alternate(const json& run, Workbench& bench, const std::filesystem::path& beside, const std::vector<Job>& jobs,
               const std::function<void(double)>& progress, Baselines* shared, json& line) {
  const int repeats = run["measure"]["repeats"], batch = run["engine"]["batch"];
  const double wanted = run["measure"]["seconds"];
  const bool settle = run["measure"]["warmup"];
  auto start = std::chrono::steady_clock::now();  // of the kept measurements
  Agreement agreement;
  line["repeats"] = json::array();
  for (int i = 0; i < repeats || seconds_since(start) < wanted; ++i) {
    Measured both[2];  // by Side
    std::string first;
    for (int k = 0; k < 2; ++k) {
      const Side side = (i + k) % 2 == 0 ? Side::baseline : Side::speculative;
      if (k == 0) first = side == Side::baseline ? "baseline" : "speculative";
      const auto once = [&] {
        const auto engine = bench.engine(run, side, beside);
        return measure(*engine, jobs, batch, [&](double part) {
          check_interrupt();
          const double share = (i + (k + part) / 2) / repeats;
          progress(wanted > 0 ? std::min(share, seconds_since(start) / wanted) : share);
        });
      };
      const auto now = [&] {
        const auto begin = std::chrono::steady_clock::now();
        return settle ? measure_settled(once, [&] { start += std::chrono::steady_clock::now() - begin; }) : once();
      };
      both[int(side)] = shared && side == Side::baseline ? shared->of(run, std::size_t(i), now) : now();
    }
    agreement.add(both[0], both[1]);
    note_failures(both[0], jobs, "baseline", i, line), note_failures(both[1], jobs, "speculative", i, line);
    line["repeats"].push_back(
        {{"first", first}, {"baseline", std::move(both[0].measure)}, {"speculative", std::move(both[1].measure)}});
  }
  const bool compare = line["agreement"]["compared"];
  line["agreement"]["compared_texts"] = compare ? agreement.compared : 0;
  line["agreement"]["differing_texts"] = compare ? agreement.different : 0;
}

void fill(const Run& run, Workbench& bench, const std::filesystem::path& beside,
          const std::function<void(double)>& progress, Baselines* shared, json& line) {
  line["machine"] = machine_of(bench.backend(run.document["engine"]));
  line["sources"] = sources_of(run.document, bench.registries(), beside);
  {
    const auto engine = bench.engine(run.document, Side::speculative, beside);
    const ModelInfo& target = engine->target().info();
    line["promise"] = engine->soundness().promise;
    line["target"] = {{"name", target.name}, {"vocab", target.vocab}, {"weight_bytes", target.weight_bytes}};
    line["agreement"] = {
        {"compared", comparable(run.document, engine->soundness())}, {"compared_texts", 0}, {"differing_texts", 0}};
  }
  const auto jobs = jobs_of(run.document, bench, beside);
  if (shared) line["shared_baseline"] = true;
  warm_up(run.document, bench, beside, jobs, !shared || !shared->known(run.document));
  if (run.document.contains("trace")) record_trace(trace_file(run), line, jobs, bench, beside);
  alternate(run.document, bench, beside, jobs, progress, shared, line);
  if (const std::string damage = damage_of(line); !damage.empty()) throw Error(damage);  // no prompt without a failure
  line["machine"] =
      machine_of(bench.backend(run.document["engine"]));  // with what the device measured of itself meanwhile
}

}  // namespace

std::vector<Job> jobs_of(const json& run, Workbench& bench, const std::filesystem::path& beside) {
  const json& w = run["workload"];
  const auto prompts = choose_prompts(read_prompts(locate(w["prompts"], beside)), w["categories"], w["limit"]);
  const auto target = bench.target(run, beside);
  const auto tokenizer = bench.tokenizer(target_of(run), beside);
  const auto chat = chat_of(run, beside);
  const std::size_t wanted = 4 * run["engine"]["batch"].get<std::size_t>();
  const std::uint64_t samples = run["sampling"]["samples"];
  std::vector<Job> jobs;
  for (std::uint64_t begin = 0; begin == 0 || jobs.size() < wanted; begin += samples)
    for (const Prompt& p : prompts) {
      const int first = int(jobs.size());
      for (std::uint64_t k = 0; k < samples; ++k)
        jobs.push_back(
            {request_of(run, target->info(), tokenizer, chat, p, begin + k), p.number, p.category, k > 0 ? first : -1});
    }
  return jobs;
}

std::vector<Job> warm_up_jobs(std::vector<Job> jobs, std::size_t batch) {
  constexpr std::size_t kTokens = 16;  // of the first batch, at most
  jobs.resize(std::min(jobs.size(), 2 * batch));
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    int& most = jobs[i].request.limits.max_new_tokens;
    most = std::min(most, std::max(1, int(kTokens * (i + 1) / batch)));
  }
  return jobs;
}

Measured measure_settled(const std::function<Measured()>& measure, const std::function<void()>& again) {
  Measured first = measure();
  if (first.measure.at("recorded") == 0) return first;
  again();
  return measure();
}

bool Baselines::known(const json& run) const {
  const auto found = measured_.find(baseline_of(run));
  return found != measured_.end() && !found->second.empty();
}

Measured Baselines::of(const json& run, std::size_t repeat, const std::function<Measured()>& measure) {
  std::vector<Measured>& all = measured_[baseline_of(run)];
  while (all.size() <= repeat) all.push_back(measure());
  return all[repeat];
}

json measure_run(const Run& run, Workbench& bench, const std::filesystem::path& beside,
                 const std::function<void(double)>& progress, Baselines* shared) {
  const auto start = std::chrono::steady_clock::now();
  json line{{"schema", kResultSchema}, {"key", run.key},      {"run", run.document},   {"axes", run.axes},
            {"commit", kCommit},       {"version", kVersion}, {"compiler", kCompiler}, {"date", utc_now()}};
  try {
    fill(run, bench, beside, progress, shared, line);
  } catch (const Error& e) {
    check_interrupt();  // Ctrl-C while a plugin's component loaded a model comes as an Error that names the plugin
    line["error"] = e.what();
  } catch (const std::bad_alloc&) {
    line["error"] = "there is not enough memory for this run; lower \"memory_mib\" or \"batch\" of the engine";
  } catch (const std::filesystem::filesystem_error& e) {
    line["error"] = e.path1().string() + ": " + e.code().message();
  }
  bench.forget_unused();  // also after a failed run: the next ones need its memory
  if (line.contains("error")) line.erase("repeats"), line.erase("agreement"), line.erase("failures");
  line["seconds"] = seconds_since(start);
  return line;
}

bool texts_differ(const json& line) {
  const bool fast = line.value(json::json_pointer("/machine/device"), "") == "cuda" &&
                    line.value(json::json_pointer("/run/engine/numerics"), "fast") == "fast";
  const bool lossy = line.value("promise", "").starts_with("lossy");
  return line.value(json::json_pointer("/agreement/differing_texts"), 0L) > 0 && !fast && !lossy;
}

std::string label_of(const Run& run) {
  std::string s;
  for (const auto& [pointer, value] : run.axes.items()) {
    const bool named = value.is_object() && value.contains("name") && value["name"].is_string();
    s += (s.empty() ? "" : ", ") + pointer.substr(pointer.rfind('/') + 1) + " " +
         (named               ? value["name"].get<std::string>()
          : value.is_string() ? value.get<std::string>()
                              : shown(value));
  }
  return s.empty() ? "the run" : s;
}

namespace {

void measure_all(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options, ResultsFile& file) {
  const auto kept = std::ranges::count_if(runs, [&](const Run& r) { return file.has(r.key); });
  Progress progress(options.title, int(runs.size()), int(kept), options.quiet);
  Baselines baselines;
  int done = int(kept);
  watch_interrupts();
  for (const Run& run : runs) {
    if (file.has(run.key)) continue;
    check_interrupt();
    progress.show(done, label_of(run));
    const json line = measure_run(
        run, bench, options.beside, [&](double part) { progress.show(done, label_of(run), part); },
        options.share_baselines ? &baselines : nullptr);
    file.append(line);
    if (line.contains("error")) {
      progress.clear();
      spdlog::error("{}: {}", label_of(run), line["error"].get<std::string>());
    }
    progress.show(++done, "");
  }
}

}  // namespace

int SweepOutcome::exit_code() const { return interrupted ? kInterruptedExit : failed > 0 ? 1 : 0; }

SweepOutcome run_sweep(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options) {
  ResultsFile file(options.results);
  SweepOutcome out;
  const auto machine_here = [&](const json& engine) { return machine_of(bench.backend(engine)); };
  const Origins origins = origins_of(runs, file, options.beside, kCommit, machine_here);
  for (const std::string& sentence : origins.sentences) spdlog::warn("{}", sentence);
  for (const std::string& key : origins.changed) file.discard(key);
  try {
    measure_all(runs, bench, options, file);
  } catch (const Interrupted&) {
    out.interrupted = true;
    spdlog::warn("interrupted; finished runs are in {}, and `foretoken run` with that file continues from there",
                 file.path().string());
  }
  std::map<std::string, json> latest;
  for (json& line : load_results(file.path())) {
    std::string key = line["key"];
    latest[std::move(key)] = std::move(line);
  }
  for (const Run& run : runs) {
    const auto found = latest.find(run.key);
    if (found == latest.end() || file.discarded(run.key)) continue;
    const json& line = out.lines.emplace_back(std::move(found->second));
    const bool differ = texts_differ(line);
    if (differ)
      spdlog::error(
          "{}: {} of {} outputs differ from plain decoding's, which must not happen on this device; please report it "
          "with {}",
          label_of(run), line["agreement"]["differing_texts"].dump(), line["agreement"]["compared_texts"].dump(),
          file.path().string());
    if (line.contains("failures")) {
      const json& first = line["failures"].front();
      spdlog::error("{}: {} requests failed and their prompts are in no figure; the first, of prompt {} ({}): {}",
                    label_of(run), line["failures"].size(), first["prompt"].get<int>() + 1,
                    first["side"].get<std::string>(), first["failure"].get<std::string>());
    }
    out.failed += line.contains("error") || line.contains("failures") || differ;
  }
  return out;
}

}  // namespace foretoken

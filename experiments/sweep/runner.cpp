#include "experiments/sweep/runner.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <new>

#include <spdlog/spdlog.h>

#include "experiments/report/load.h"
#include "experiments/report/machine.h"
#include "experiments/report/results.h"
#include "experiments/report/summary.h"
#include "experiments/sweep/interrupt.h"
#include "experiments/sweep/progress.h"
#include "experiments/sweep/provenance.h"
#include "experiments/sweep/tracing.h"
#include "foretoken_version.h"
#include "framework/text/json_file.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

// Whether speculation must give plain decoding's output, token by token: at temperature 0, or with a path-identical
// verifier.
bool comparable(const json& run, const Soundness& soundness) {
  return run["sampling"]["temperature"] == 0 || soundness.path_identical();
}

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

// Measures sides of a run. Every measurement has a fresh engine, so none reuses another's prefixes.
class Alternations {
 public:
  Alternations(const json& run, Workbench& bench, const std::filesystem::path& beside, const std::vector<Job>& jobs,
               const std::function<void(double)>& progress, Baselines* shared)
      : run_(run), bench_(bench), beside_(beside), jobs_(jobs), progress_(progress), shared_(shared) {}

  // All alternations, into the line.
  // `differs`: they need not do the same.
  void measure_all(bool differs, json& line) {
    SameAgain same(!differs);
    Agreement agreement;
    line["repeats"] = json::array(), line["thrown_away"] = json::array();
    for (int i = 0; i < repeats_ || seconds_since(start_) < wanted_; ++i) {
      Taken both[2];  // by Side
      for (int k = 0; k < 2; ++k) both[(i + k) % 2] = one(Side((i + k) % 2), i, k);
      agreement.add(both[0].measured, both[1].measured);
      json repeat{{"first", i % 2 == 0 ? "baseline" : "speculative"}};
      for (const Side side : {Side::baseline, Side::speculative}) {
        const char* name = side == Side::baseline ? "baseline" : "speculative";
        Taken& taken = both[int(side)];
        if (i == 0 && run_["measure"]["keep_outputs"]) keep_outputs(taken.measured);
        same.add(taken.measured, name, i);
        note_failures(taken.measured, jobs_, name, i, line);
        for (json& thrown : taken.thrown_away) {
          thrown.update({{"side", name}, {"repeat", i}});
          line["thrown_away"].push_back(std::move(thrown));
        }
        repeat[name] = std::move(taken.measured.measure);
      }
      line["repeats"].push_back(std::move(repeat));
    }
    line["alternations"] = same.as_json();
    const bool compare = line["agreement"]["compared"];
    line["agreement"]["compared_texts"] = compare ? agreement.compared : 0;
    line["agreement"]["differing_texts"] = compare ? agreement.different : 0;
  }

 private:
  void keep_outputs(Measured& measured) {
    const auto tokenizer = bench_.tokenizer(target_of(run_), beside_);
    for (std::size_t i = 0; i < measured.texts.size(); ++i)
      measured.measure["requests"][i]["output"] = replace_broken_utf8(tokenizer->decode(measured.texts[i]));
  }
  // A side of alternation i, as its part k.
  Taken one(Side side, int i, int k) {
    const auto once = [&] {
      const auto engine = bench_.engine(run_, side, beside_);
      return measure(*engine, jobs_, loop_of(run_, jobs_.size(), i), [&](double part) {
        check_interrupt();
        const double share = (i + (k + part) / 2) / repeats_;
        progress_(wanted_ > 0 ? std::min(share, seconds_since(start_) / wanted_) : share);
      });
    };
    const auto now = [&] {
      auto begin = std::chrono::steady_clock::now();
      return measure_kept(once, run_["measure"]["warmup"], [&] {
        start_ += std::chrono::steady_clock::now() - std::exchange(begin, std::chrono::steady_clock::now());
      });
    };
    return shared_ && side == Side::baseline ? shared_->of(run_, std::size_t(i), now) : now();
  }

  const json& run_;
  Workbench& bench_;
  const std::filesystem::path& beside_;
  const std::vector<Job>& jobs_;
  const std::function<void(double)>& progress_;
  Baselines* shared_;
  const int repeats_ = run_["measure"]["repeats"];
  const double wanted_ = run_["measure"]["seconds"];
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();  // of the kept measurements
};

void fill(const Run& run, Workbench& bench, const std::filesystem::path& beside,
          const std::function<void(double)>& progress, Baselines* shared, json& line) {
  line["machine"] = machine_of(bench.backend(run.document["engine"]));
  line["sources"] = sources_of(run.document, bench.registries(), beside);
  bool learning = false;
  {
    const auto engine = bench.engine(run.document, Side::speculative, beside);
    const ModelInfo& target = engine->target().info();
    line["promise"] = engine->soundness().promise;
    learning = engine->learns();
    line["target"] = {{"name", target.name}, {"vocab", target.vocab}, {"weight_bytes", target.weight_bytes}};
    line["agreement"] = {
        {"compared", comparable(run.document, engine->soundness())}, {"compared_texts", 0}, {"differing_texts", 0}};
  }
  const auto jobs = jobs_of(run.document, bench, beside);
  if (shared) line["shared_baseline"] = true;
  warm_up(run.document, bench, beside, jobs, !shared || !shared->known(run.document));
  if (run.document.contains("trace")) record_trace(trace_file(run), line, jobs, bench, beside);
  // In an open loop times decide which requests share a step, so what is cut and what a policy sees may differ.
  const bool differs = learning || rate_of(run.document);
  Alternations(run.document, bench, beside, jobs, progress, shared).measure_all(differs, line);
  if (const std::string damage = damage_of(line); !damage.empty()) throw Error(damage);  // no prompt without a failure
  line["machine"] =
      machine_of(bench.backend(run.document["engine"]));  // with what the device measured of itself meanwhile
}

}  // namespace

std::string baseline_of(json run) {
  run.erase("drafter"), run.erase("policy");
  return run.dump();
}

bool Baselines::known(const json& run) const {
  const auto found = measured_.find(baseline_of(run));
  return found != measured_.end() && !found->second.empty();
}

Taken Baselines::of(const json& run, std::size_t repeat, const std::function<Taken()>& measure) {
  std::vector<Taken>& all = measured_[baseline_of(run)];
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

#include "experiments/sweep/runner.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include <spdlog/spdlog.h>

#include "experiments/report/machine.h"
#include "experiments/report/results.h"
#include "experiments/report/summary.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/arrivals.h"
#include "experiments/sweep/progress.h"
#include "experiments/sweep/provenance.h"
#include "experiments/sweep/rehearsal.h"
#include "experiments/sweep/rounds.h"
#include "foretoken_version.h"
#include "framework/text/json_file.h"

namespace foretoken {

using nlohmann::json;

Result measure_run(const Run& run, Workbench& bench, const std::filesystem::path& beside,
                   const std::function<void(double)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  Result result;
  const std::string error = failure_of([&] {
    const PreparedRun prepared = prepare(run, bench, beside);
    std::vector<MeasuredAlternation> all;
    double measured = 0;
    for (int k = 0; wants_more(run.document, k, measured); ++k) {
      all.push_back(measure_alternation(
          run, k, prepared, bench, beside, [&](double part) { progress(share_done(run.document, k + part, measured)); },
          nullptr));
      measured += all.back().measured_seconds;
    }
    result = result_of(run, std::move(all));
  });
  bench.forget_unused();  // also after a failed run: the next ones need its memory
  return error.empty() ? result : failed_result(run, error, seconds_since(start), bench, beside);
}

bool texts_differ(const Result& result) {
  const bool fast = result.device() == "cuda" && result.run.value("/engine/numerics"_json_pointer, "fast") == "fast";
  const bool lossy = result.promise.value_or("").starts_with("lossy");
  return result.agreement && result.agreement->differing_texts > 0 && !fast && !lossy;
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

std::vector<Run> without(const std::vector<Run>& runs, const std::function<bool(const Run&)>& left_out) {
  std::vector<Run> others;
  std::ranges::remove_copy_if(runs, std::back_inserter(others), left_out);
  return others;
}

// `refused`: runs that have their line, which says why they fail.
void measure_all(const std::vector<Run>& runs, const std::map<std::string, std::string>& refused, Workbench& bench,
                 const SweepOptions& options, ResultsFile& file) {
  Unfinished unfinished(options.results);
  for (const Run& run : runs)
    if (file.has(run.key)) unfinished.drop(run.key);
  const std::vector<Run> wanted =
      without(runs, [&](const Run& run) { return file.has(run.key) || refused.contains(run.key); });
  const int kept = int(runs.size() - wanted.size());
  std::vector<Rounds> groups;
  for (const std::vector<Run>& group : groups_of(wanted, bench.registries()))
    groups.emplace_back(group, bench, options, file, unfinished);
  const auto work = [&] {
    return std::accumulate(groups.begin(), groups.end(), Work{kept, double(kept)},
                           [](const Work& sum, const Rounds& g) { return sum + g.work(); });
  };
  Progress progress(options.title, int(runs.size()), work().done, options.quiet);
  const auto show = [&](const std::string& note) {
    const Work now = work();
    progress.show(now.finished, note, now.done - now.finished);
  };
  // Asked after every step, within the time that is measured: it must not depend on the number of runs.
  auto next = std::chrono::steady_clock::now();
  const auto show_now_and_then = [&](const Run& run) {
    constexpr std::chrono::milliseconds kPause(200);
    if (const auto now = std::chrono::steady_clock::now(); now >= next) show(label_of(run)), next = now + kPause;
  };
  const auto failed = [&](const Run& run, const std::string& error) {
    progress.clear();
    spdlog::error("{}: {}", label_of(run), error);
  };
  const std::set<std::string> first = first_looks(wanted);
  for (Rounds& group : groups) group.look(first, show_now_and_then, failed);
  for (Rounds& group : groups) group.measure(show_now_and_then, failed);
  show("");
}

// Says what a line holds that must not be; whether its outputs differ.
bool tell_failures(const Run& run, const Result& result, const std::filesystem::path& file) {
  const bool differ = texts_differ(result);
  if (differ)
    spdlog::error(
        "{}: {} of {} outputs differ from plain decoding's, which must not happen on this device; please report it "
        "with {}",
        label_of(run), result.agreement->differing_texts, result.agreement->compared_texts, file.string());
  if (!result.failures.empty()) {
    const Failure& first = result.failures.front();
    spdlog::error("{}: {} requests failed and their prompts are in no figure; the first, of prompt {} ({}): {}",
                  label_of(run), result.failures.size(), first.prompt + 1, first.side, first.failure);
  }
  return differ;
}

// The runs that are refused, by key, with their first reason. Each reason is an error message.
std::map<std::string, std::string> tell(const std::vector<Refusal>& refusals, std::size_t pending) {
  std::map<std::string, std::string> refused;
  for (const Refusal& refusal : refusals) {
    spdlog::error("{}", sentence_of(refusal, pending));
    for (const Run& run : refusal.runs) refused.try_emplace(run.key, refusal.reason);
  }
  return refused;
}

// Of the runs that are `measured`, those that read files with other contents now; also tells what else is different.
std::set<std::string> changed_since(const std::vector<Run>& runs, const std::map<std::string, Origin>& measured,
                                    Workbench& bench, const SweepOptions& options) {
  const auto machine_here = [&](const json& engine) { return machine_of(bench.backend(engine)); };
  Origins origins = origins_of(runs, measured, options.results, options.beside, kCommit, machine_here);
  for (const std::string& sentence : origins.sentences) spdlog::warn("{}", sentence);
  return std::move(origins.changed);
}

// Where one run of one is refused, its reason says it all.
void tell_remedy(int refused, std::size_t pending) {
  if (const int others = int(pending) - refused; others > 0)
    spdlog::error("nothing is measured; correct the document, or measure the {} with --keep-going",
                  others == 1 ? "other run" : "other " + std::to_string(others) + " runs");
  else if (pending > 1)
    spdlog::error("nothing is measured; correct the document");
}

}  // namespace

int SweepOutcome::exit_code() const { return interrupted ? kInterruptedExit : failed + refused > 0 ? 1 : 0; }

std::set<std::string> measured_keys(const std::vector<Run>& runs, const std::vector<Result>& results, Workbench& bench,
                                    const SweepOptions& options) {
  std::map<std::string, Origin> measured;
  for (const Result& result : results)
    if (!result.unfinished && !result.failed() && damage_of(result).empty()) measured[result.key] = result.origin;
  std::set<std::string> keys;
  for (const auto& [key, origin] : measured) keys.insert(key);
  for (const std::string& key : changed_since(runs, measured, bench, options)) keys.erase(key);
  return keys;
}

SweepOutcome rehearse_sweep(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options) {
  const std::set<std::string> measured = measured_keys(
      runs, has_file(options.results) ? load_results(options.results) : std::vector<Result>(), bench, options);
  const std::vector<Run> pending = without(runs, [&](const Run& run) { return measured.contains(run.key); });
  SweepOutcome out;
  out.refused = int(tell(rehearse(pending, bench, options.beside), pending.size()).size());
  if (out.refused > 0)
    tell_remedy(out.refused, pending.size());
  else if (!options.quiet)
    spdlog::info("{} of {} runs are not measured yet, and nothing speaks against them", pending.size(), runs.size());
  return out;
}

SweepOutcome run_sweep(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options) {
  ResultsFile file(options.results);
  SweepOutcome out;
  std::map<std::string, Origin> measured;
  for (const Run& run : runs)
    if (file.has(run.key)) measured[run.key] = file.origin_of(run.key);
  for (const std::string& key : changed_since(runs, measured, bench, options)) file.discard(key);
  watch_interrupts();
  try {
    const std::vector<Run> pending = without(runs, [&](const Run& run) { return file.has(run.key); });
    const auto refused = tell(rehearse(pending, bench, options.beside), pending.size());
    out.refused = int(refused.size());
    if (!refused.empty() && !options.keep_going) {
      tell_remedy(out.refused, pending.size());
      return out;
    }
    for (const Run& run : pending)
      if (const auto found = refused.find(run.key); found != refused.end())
        file.append(failed_result(run, found->second, 0, bench, options.beside));
    measure_all(runs, refused, bench, options, file);
  } catch (const Interrupted&) {
    out.interrupted = true;
    spdlog::warn(
        "interrupted; finished runs are in {}, alternations of others beside it, and `foretoken run` with that file "
        "continues from there",
        file.path().string());
  }
  std::map<std::string, Result> latest;
  for (Result& result : out.interrupted ? load_with_unfinished(file.path()) : load_results(file.path()))
    latest[result.key] = std::move(result);
  for (const Run& run : runs) {
    const auto found = latest.find(run.key);
    if (found == latest.end() || file.discarded(run.key)) continue;
    const Result& result = out.lines.emplace_back(std::move(found->second));
    const bool differ = tell_failures(run, result, file.path());
    out.failed += result.failed() || !result.failures.empty() || differ;
  }
  return out;
}

}  // namespace foretoken

#include "experiments/sweep/quickstart.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include <spdlog/spdlog.h>

#include "experiments/report/report.h"
#include "experiments/report/results.h"
#include "experiments/report/terminal.h"
#include "experiments/sweep/clock.h"
#include "experiments/sweep/interrupt.h"
#include "experiments/sweep/run_document.h"
#include "experiments/sweep/runner.h"
#include "experiments/sweep/unfinished.h"
#include "foretoken_version.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr int kFamilies = 6, kFewestPrompts = 24, kFewestTokens = 16, kTokens = 64;
constexpr double kProbeSeconds = 8;  // for the first measurement
constexpr double kLoading = 0.1;     // of the time: engines, warm-ups, tables
constexpr double kSlack = 0.5;  // three alternations are planned for this share of a run's time: else more follow, and
                                // other load on the machine does not exceed the time

json resized(json run, const Size& size) {
  run["workload"]["limit"] = size.prompts, run["workload"]["max_new_tokens"] = size.max_new_tokens;
  return run;
}

// Seconds of one request of one side, when `tokens` are generated for each of six prompts, one per family.
double probe(const json& run, Side side, int tokens, Workbench& bench) {
  auto jobs = jobs_of(resized(run, {kFamilies, tokens}), bench, "");
  jobs.resize(std::min(jobs.size(), std::size_t(2 * kFamilies)));
  const auto engine = bench.engine(run, side, "");
  const auto start = std::chrono::steady_clock::now();
  measure(*engine, jobs, run.at("engine").at("batch").get<int>(), [](double) { check_interrupt(); });
  return seconds_since(start) / double(jobs.size());
}

// Runs that differ only in the draft length or the temperature cost about the same and share one measurement: the
// middle one of four lengths at temperature 1, where fewer drafts are accepted.
Costs measure_costs(const std::vector<Run>& runs, Workbench& bench) {
  const auto of = [](const Run& r, const char* pointer) { return r.document.at(json::json_pointer(pointer)); };
  probe(runs.front().document, Side::baseline, 1, bench);  // loads the target, starts the threads
  const double token = probe(runs.front().document, Side::baseline, 4, bench) / 4;
  std::map<std::string, double> known;
  Costs costs;
  costs.max_new_tokens = std::clamp(int(kProbeSeconds / (8 * kFamilies * token)), 8, kTokens);
  for (const Run& run : runs) {
    if (of(run, "/sampling/temperature") == 0) continue;
    const std::string batch = of(run, "/engine/batch").dump();
    const std::string drafted =
        of(run, "/drafter/name").dump() + batch + (of(run, "/policy/length") > 2 ? " long" : " short");
    if (!known.contains(batch)) known[batch] = probe(run.document, Side::baseline, costs.max_new_tokens, bench);
    if (!known.contains(drafted)) known[drafted] = probe(run.document, Side::speculative, costs.max_new_tokens, bench);
    costs.request_by_request += 2 * (known[batch] + known[drafted]);  // at both temperatures
  }
  return costs;
}

// On a device without invariant numerics outputs may differ where two tokens are nearly equally probable.
void tell_agreement(const SweepOutcome& outcome) {
  long compared = 0, different = 0;
  for (const json& line : outcome.lines) {
    compared += line["agreement"]["compared_texts"].get<long>();
    different += line["agreement"]["differing_texts"].get<long>();
  }
  if (different == 0)
    spdlog::info("every greedy output equals plain decoding's, token for token");
  else
    spdlog::warn("{} of {} greedy outputs differ from plain decoding's, since this device's numerics are \"fast\"",
                 different, compared);
}

}  // namespace

Size size_for(const Costs& costs, double seconds, int most) {
  const double requests = seconds / (kAlternations * costs.request_by_request);  // per measure, of so many tokens
  if (requests < kFewestPrompts || costs.max_new_tokens < kTokens)
    return {kFewestPrompts, std::clamp(int(costs.max_new_tokens * requests / kFewestPrompts), kFewestTokens, kTokens)};
  return {std::clamp(int(requests) / kFamilies * kFamilies, kFewestPrompts, most), costs.max_new_tokens};
}

int quickstart(const QuickstartOptions& options) {
  watch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  expect_json_lines(options.results, result_lines());  // before minutes of measuring
  {
    const JsonLinesFile writable(options.results, result_lines());
  }
  const std::filesystem::path root = kSourceDirectory, file = root / "experiments/configs/quickstart.json";
  const auto document = read_document(file);
  std::vector<std::string> settings{"/engine/device=" + options.device};
  Workbench bench;
  const std::vector<Run> plan = expand(document, settings, bench.registries(), file.string());
  const int most = int(read_prompts(locate(plan.front().document.at("workload").at("prompts"))).size());
  const Costs costs = measure_costs(plan, bench);
  const double seconds = (1 - kLoading) * (options.seconds - seconds_since(start));
  const Size size = size_for(costs, kSlack * seconds, most);
  settings.push_back("/workload/limit=" + std::to_string(size.prompts));
  settings.push_back("/workload/max_new_tokens=" + std::to_string(size.max_new_tokens));
  settings.push_back("/measure/repeats=" + std::to_string(kAlternations));
  settings.push_back("/measure/seconds=" + std::to_string(std::max(0.0, seconds / double(plan.size()))));
  const std::vector<Run> runs = expand(document, settings, bench.registries(), file.string());
  spdlog::info("{} runs of {} prompts with up to {} new tokens each, in at least {} alternations with plain decoding",
               runs.size(), size.prompts, size.max_new_tokens, kAlternations);

  if (const auto older = set_aside(options.results, result_lines()); !older.empty())
    spdlog::info("older results were renamed to {}", older.string());
  Unfinished(options.results).drop_all();  // only now is it sure that no other program writes there
  const SweepOutcome outcome = run_sweep(runs, bench, {options.results, root, "foretoken quickstart", false});
  std::vector<std::string> tables;  // the main table; other tables by `foretoken show`
  if (options.format == "terminal" || options.format == "markdown") tables = {"main", "best"};
  if (!outcome.lines.empty()) print(show(outcome.lines, {options.format, tables, options.width}) + "\n");
  std::fflush(stdout);
  if (outcome.exit_code() == 0) tell_agreement(outcome);
  spdlog::info("{:.0f} s; results are in {}", seconds_since(start), options.results);
  spdlog::info(
      "next: foretoken show {} (all tables: positions, categories, phases), notebooks/first_look.ipynb (plots), "
      "foretoken generate --help, experiments/README.md (your own sweep)",
      options.results);
  return outcome.exit_code();
}

}  // namespace foretoken

#include "experiments/sweep/quickstart.h"

#include <algorithm>
#include <cstdio>

#include <spdlog/spdlog.h>

#include "experiments/report/report.h"
#include "experiments/report/results.h"
#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/arrivals.h"
#include "experiments/sweep/rounds.h"
#include "experiments/sweep/runner.h"
#include "foretoken_version.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr double kLoading = 0.1;  // of the time: engines, warm-ups, tables

// On a device without invariant numerics outputs may differ where two tokens are nearly equally probable.
void tell_agreement(const SweepOutcome& outcome) {
  long compared = 0, different = 0;
  for (const Result& result : outcome.lines) {
    compared += result.agreement->compared_texts;
    different += result.agreement->differing_texts;
  }
  if (different == 0)
    spdlog::info("every greedy output equals plain decoding's, token for token");
  else
    spdlog::warn("{} of {} greedy outputs differ from plain decoding's, since this device's numerics are \"fast\"",
                 different, compared);
}

}  // namespace

int quickstart(const QuickstartOptions& options) {
  watch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  expect_json_lines(options.results, result_lines());  // before minutes of measuring
  {
    const JsonLinesFile writable(options.results, result_lines());
  }
  const std::filesystem::path root = kSourceDirectory, file = root / "experiments/configs/quickstart.json";
  const auto document = read_document(file);
  Workbench bench;
  std::vector<std::string> settings{"/engine/device=" + options.device};
  settings.insert(settings.end(), options.settings.begin(), options.settings.end());
  const std::size_t count = expand(document, settings, bench.registries(), file.string()).size();
  const double seconds = (1 - kLoading) * options.seconds / double(count);
  settings.push_back("/measure/seconds=" + std::to_string(std::max(0.0, seconds)));
  const std::vector<Run> runs = expand(document, settings, bench.registries(), file.string());
  const json& run = runs.front().document;
  spdlog::info("{} runs of {} prompts with up to {} new tokens each, in at least {} alternations with plain decoding",
               runs.size(), run.at("workload").at("limit").dump(), run.at("workload").at("max_new_tokens").dump(),
               run.at("measure").at("repeats").dump());

  if (const auto older = set_aside(options.results, result_lines()); !older.empty())
    spdlog::info("older results were renamed to {}", older.string());
  Unfinished(options.results).drop_all();  // only now is it sure that no other program writes there
  const SweepOutcome outcome =
      run_sweep(runs, bench, {options.results, root, "foretoken quickstart", false, false, true});
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

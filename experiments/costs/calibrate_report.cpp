#include <algorithm>
#include <cmath>
#include <cstdio>

#include <spdlog/spdlog.h>

#include "experiments/costs/calibrate.h"
#include "experiments/costs/costs_file.h"
#include "experiments/report/machine.h"
#include "experiments/report/table.h"
#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/progress.h"

namespace foretoken {
namespace {

using nlohmann::json;

// "median 3.1 %, worst 9 %"
std::string error_text(const CostError& error) {
  if (std::isnan(error.median)) return "not known, from so few steps";
  char text[80];
  std::snprintf(text, sizeof text, "median %.1f %%, worst %.1f %%", 100 * error.median, 100 * error.worst);
  return text;
}

Table costs_table(const CostModel& costs) {
  Table table;
  table.title = "Steps as they were measured, and their fit";
  table.columns = {{"batch", "batch", "sequences"},
                   {"rows", "rows", "of the target's forward"},
                   {"depth", "depth", "levels of the draft that was asked for"},
                   {"context", "context", "positions of all sequences"},
                   {"steps", "steps", ""},
                   {"step ms", "step_ms", "median of the whole step"},
                   {"draft ms", "draft_ms", "of it, drafting"},
                   {"fit ms", "fit_ms", "of the whole step"},
                   {"off", "off", "the fit over the measured step, less 1, in percent"}};
  for (const CostedStep& s : costs.steps()) {
    const double fit = costs.seconds(s.shape);
    Row& row = table.rows.emplace_back();
    row.cells = {
        Cell::of(double(s.shape.batch), 0), Cell::of(s.shape.rows, 0),    Cell::of(double(s.shape.depth), 0),
        Cell::of(s.shape.context, 0),       Cell::of(double(s.steps), 0), Cell::of(1e3 * s.seconds, 3),
        Cell::of(1e3 * s.draft_seconds, 3), Cell::of(1e3 * fit, 3),       Cell::of(100 * (fit / s.seconds - 1), 1)};
  }
  const PromptCosts& prompt = costs.prompt();
  char text[200];
  std::snprintf(text, sizeof text,
                " A token of a prompt takes %.1f us, %.3f us more for each one before it, and %.1f us of the drafter.",
                1e6 * prompt.seconds, 1e6 * prompt.position_seconds, 1e6 * prompt.draft_seconds);
  table.note = "A step that the fit has not seen is predicted with an error of " +
               error_text(costs.cross_validation()) + " (each left out in turn)." + text;
  return table;
}

}  // namespace

int run_calibrate(const CalibrateOptions& options) {
  expect_costs_place(options.out);
  const std::filesystem::path file = options.file, beside = file.parent_path();
  const auto document = read_document(file);
  Workbench bench(options.plugins);
  bench.load_plugins(document, beside);
  const std::vector<Run> runs = expand(document, options.set, bench.registries(), file.string());
  const CalibrationPlan plan = calibration_plan(runs, options.choice, bench, beside);
  watch_interrupts();
  Progress progress("foretoken calibrate", int(plan.batches.size() * plan.contexts.size()), 0, options.quiet,
                    "engines");
  const Calibration calibration =
      calibrate(plan, bench, beside, [&](int engine, double share) { progress.show(engine, "", share); });
  progress.clear();
  const CostModel& costs = calibration.costs;
  if (calibration.engines < calibration.planned)
    spdlog::warn(
        "{} of {} pairs of a batch and a context were measured within --seconds; the others are predicted from them",
        calibration.engines, calibration.planned);
  const json found = costs_document(costs, plan.run, bench.backend(plan.run.at("engine")));
  if (!options.out.empty()) write_costs(options.out, found);
  const Table table = costs_table(costs);
  if (options.format == "json")
    print(found.dump(1) + "\n");
  else if (options.format == "csv")
    print(table.csv());
  else
    print((options.format == "markdown" ? table.markdown() : table.terminal(options.width)) + "\n" +
          legend({table}, options.width, options.format == "markdown"));
  return 0;
}

}  // namespace foretoken

// `foretoken calibrate`: measures what steps of a run's target and drafter take on this machine, by batch, draft and
// context, as a file of costs (drafters/policies/cost_model.h). This module must not know what is predicted from it.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "drafters/policies/cost_model.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/sweep.h"

namespace foretoken {

// Which steps are measured: every draft at every batch and context.
struct CalibrationPlan {
  nlohmann::json run;                  // complete: target, drafter, verifier, sampling, engine and prompts
  std::vector<int> batches, contexts;  // sequences; tokens of a prompt when decoding begins. Rising
  std::vector<Budget> budgets;         // drafts; the first is none
  double seconds = 60;                 // that measuring takes at most, in all
};

// What an option leaves to the runs of a document is empty.
struct CalibrationChoice {
  std::vector<int> batches, contexts, lengths;
  double seconds = 60;
};

// Of the runs of a document, which must agree in target, drafter, verifier, sampling and engine, but for its batch: the
// batches are powers of two up to 4, and of four, up to the largest, and those of the runs; the drafts powers of two up
// to the longest, chains or as wide as the runs' trees; the contexts 64, and 512 or what the target has room for.
CalibrationPlan calibration_plan(const std::vector<Run>& runs, const CalibrationChoice& choice, Workbench& bench,
                                 const std::filesystem::path& beside);

struct Calibration {
  CostModel costs;
  int engines = 0, planned = 0;  // a batch and a context each: measured within the time, and all
};

// Takes steps with the run's own prompts, cut or joined to the length of a context: decoding of whole batches, whose
// drafts take turns every few steps, so that a machine that changes meanwhile changes for all alike. Of equal steps
// the median counts. Batches and contexts that the time does not reach are left out; an Error where it was too short
// for any. `progress` is called with the number of the engine (a batch and a context) and the share of its time that is
// over. Ctrl-C throws Interrupted.
Calibration calibrate(const CalibrationPlan& plan, Workbench& bench, const std::filesystem::path& beside,
                      const std::function<void(int engine, double share)>& progress);

struct CalibrateOptions {
  std::string file, out;
  std::vector<std::string> set, plugins;
  CalibrationChoice choice;
  bool quiet = false;
  std::string format = "terminal";  // terminal, markdown, csv, json
  int width = 118;
};

// Prints a table of the steps beside their fit, and its error; returns an exit code.
int run_calibrate(const CalibrateOptions& options);

}  // namespace foretoken

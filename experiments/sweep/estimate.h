// Which runs of a sweep are measured, and about how long the others will take. This module must not know how a run is
// measured.
#pragma once
#include <string>
#include <vector>

#include "experiments/sweep/runner.h"

namespace foretoken {

// What the time of a run was taken from.
enum class RestsOn {
  none,          // it is measured
  same_drafter,  // runs of the file with one target, device, batch and drafter
  same_target,   // the same with any drafter
  timed,         // steps of plain decoding that were timed for it, as which both sides count
  unknown,       // it fails
};

struct Expected {
  Run run;
  int done = 0;        // alternations that are kept
  double seconds = 0;  // that it still takes; 0 where it is measured, or unknown
  RestsOn basis = RestsOn::none;
};

// Of every run, in the order in which the first round measures them, those that are measured last. Times of runs of the
// file are scaled by the tokens that a run generates and by its alternations; where the file has no like run, the
// target is loaded and a few steps are timed, once for each target, device and batch. Nothing is written.
std::vector<Expected> estimate(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options);

// For a terminal: a line for each run, the sum, and what it rests on. The processes of several GPUs share the time.
std::string as_text(const std::vector<Expected>& runs, std::size_t gpus);
// {"runs": [{"key", "axes", "measured", "alternations", "seconds", "basis"}], "seconds"}
nlohmann::json as_json(const std::vector<Expected>& runs);

// "40 s", "12 min", "3 h 5 min"
std::string duration(double seconds);

}  // namespace foretoken

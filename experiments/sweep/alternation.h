// One alternation of a run: its baseline (the same engine without speculation) and speculation, one after the other,
// with fresh engines. This module must not know what is measured between two alternations, nor where they are kept.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/sweep/baselines.h"
#include "experiments/sweep/measure.h"
#include "experiments/sweep/prepared.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/workbench.h"

namespace foretoken {

// What measures a run now.
Origin origin_now(const Run& run, Workbench& bench, const std::filesystem::path& beside);

// An alternation as it is kept until its run has all of them.
struct MeasuredAlternation {
  int schema = kResultSchema;
  std::string key;      // of its run
  int alternation = 0;  // its number, from 0
  nlohmann::json run = nlohmann::json::object(), axes = nlohmann::json::object();
  std::optional<std::string> sweep;
  Origin origin;
  EngineFacts engine;
  bool shared_baseline = false;
  int together = 1;  // runs of its round
  std::string first, began;
  double seconds = 0, measured_seconds = 0;  // measured: without loading, warm-up and what was thrown away
  MeasuredSide baseline, speculative;
};
nlohmann::json to_json(const MeasuredAlternation& alternation);
// An Error where it lacks something, or has another type.
MeasuredAlternation alternation_of(const nlohmann::json& kept);

// Alternation number k, from 0. The trace of a run that has one is recorded with the first. `progress` gets the share
// that is done. With `shared` the baseline may be that of another run. A failure of the run is an Error.
MeasuredAlternation measure_alternation(const Run& run, int k, const Prepared& prepared, Workbench& bench,
                                        const std::filesystem::path& beside,
                                        const std::function<void(double)>& progress, Baselines* shared);

// Whether a run that has `done` alternations, which took so many measured seconds, wants another.
bool wants_more(const nlohmann::json& run, int done, double measured_seconds);
// The share of a run's alternations that are done; at most 1.
double share_done(const nlohmann::json& run, double done, double measured_seconds);

// The result of a run that has all of its alternations. One that no figures can be made of is an Error.
Result result_of(const Run& run, std::vector<MeasuredAlternation> alternations);
// That of a run that failed.
Result failed_result(const Run& run, const std::string& error, double seconds, Workbench& bench,
                     const std::filesystem::path& beside);
// What goes wrong in a run, as a sentence; empty where nothing does. Interrupted goes on.
std::string failure_of(const std::function<void()>& measure);

}  // namespace foretoken

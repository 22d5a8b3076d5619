// One alternation of a run: its baseline (the same engine without speculation) and speculation, one after the other,
// with fresh engines. This module must not know what is measured between two alternations, nor where they are kept.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/session/workbench.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/measure.h"
#include "experiments/sweep/sweep.h"

namespace foretoken {

// What an engine says of itself.
struct EngineFacts {
  std::string promise;
  Target target;
  bool compared = false;  // outputs, with the baseline's
  bool learns = false;
};

// What all alternations of a run share.
struct PreparedRun {
  std::vector<Job> jobs, before;  // `before`: served before speculation is measured with `jobs`
  EngineFacts engine;
};

// Made once in a process. A failure of the run is an Error.
PreparedRun prepare(const Run& run, Workbench& bench, const std::filesystem::path& beside);

// The fields that determine a baseline, as text: all except drafter and policy, the state that they begin from, and
// their trace.
std::string baseline_of(nlohmann::json run);

// Baselines of one round, shared by all runs of a sweep that differ only in drafter and policy. Valid where absolute
// times are stable (an exclusive GPU), not on a shared CPU, where only alternating measurements can be compared.
class Baselines {
 public:
  bool known(const nlohmann::json& run) const { return measured_.contains(baseline_of(run)); }
  // `measure` is called if this round has not measured it yet.
  const MeasuredSide& of(const nlohmann::json& run, const std::function<MeasuredSide()>& measure);
  // One that was measured before.
  void put(const nlohmann::json& run, MeasuredSide baseline) { measured_[baseline_of(run)] = std::move(baseline); }
  void clear() { measured_.clear(); }

 private:
  std::map<std::string, MeasuredSide> measured_;
};

// While it lives, and where the run was `warmed_up`, the device records no new forward, which would take milliseconds:
// it runs as it is. Two of one device must not live at once.
class NothingRecorded {
 public:
  NothingRecorded(Backend& backend, bool warmed_up) : backend_(backend) { backend_.record_new(!warmed_up); }
  ~NothingRecorded() { backend_.record_new(true); }
  NothingRecorded(const NothingRecorded&) = delete;

 private:
  Backend& backend_;
};

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
MeasuredAlternation measure_alternation(const Run& run, int k, const PreparedRun& prepared, Workbench& bench,
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

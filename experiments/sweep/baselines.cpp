#include "experiments/sweep/baselines.h"

namespace foretoken {

using nlohmann::json;

std::string baseline_of(json run) {
  for (const char* key : {"drafter", "policy", "trace"}) run.erase(key);
  if (run.contains("workload")) run["workload"].erase("start");
  return run.dump();
}

const MeasuredSide& Baselines::of(const json& run, const std::function<MeasuredSide()>& measure) {
  const std::string key = baseline_of(run);
  if (!measured_.contains(key)) measured_[key] = measure();
  return measured_[key];
}

}  // namespace foretoken

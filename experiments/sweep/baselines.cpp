#include "experiments/sweep/baselines.h"

namespace foretoken {

using nlohmann::json;

std::string baseline_of(json run) {
  run.erase("drafter"), run.erase("policy"), run.erase("trace");
  if (run.contains("workload")) run["workload"].erase("start");
  return run.dump();
}

json Baselines::of(const json& run, const std::function<json()>& measure) {
  const std::string key = baseline_of(run);
  if (!measured_.contains(key)) measured_[key] = measure();
  return measured_[key];
}

}  // namespace foretoken

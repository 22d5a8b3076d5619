// The bars of the scenarios of `foretoken bench --steps`: what a scenario's time, the time relative to another
// scenario's, the shares of verification and of the host, and drafting relative to its forwards may be at most. This
// module must not know how they were measured.
#pragma once
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "experiments/bench/bench_scenarios.h"

namespace foretoken {

// Medians of a scenario; what was not measured is 0.
struct ScenarioTimes {
  double ms = 0, verify_ms = 0, host_ms = 0, draft_ms = 0, draft_forward_ms = 0;
};

class ScenarioBars {
 public:
  // Adds what the scenario's bars say to its line, as "bars": [{"bar", "value", "most", "met"}, ...], and returns it as
  // text for its row of the table. A scenario whose `over` was not measured in this call has no such bar.
  std::string judge(const Scenario& scenario, const ScenarioTimes& times, nlohmann::json& line);

 private:
  std::map<std::string, double> ms_;  // of the scenarios judged so far, by name
};

}  // namespace foretoken

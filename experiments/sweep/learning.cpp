#include "experiments/sweep/learning.h"

#include "framework/components/registry.h"
#include "framework/model/model.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

std::string nothing_learns(const json& run) {
  return "'/workload/start' is " + shown(run.at("workload").at("start")) + ", but neither the drafter " +
         shown(run.at("drafter").at("name")) + " nor the policy " + shown(run.at("policy").at("name")) +
         " learns, so that it would change nothing; leave it out";
}

void expect_others(const json& run, const std::string& where) {
  const std::string state = where + ": '/workload/start' is \"others\", ";
  if (run.at("workload").at("skip") == 0)
    throw Error(state +
                "but '/workload/skip' leaves out no prompts that could be served before; set it to their number");
  for (const char* key : {"/workload/repeats", "/sampling/samples"})
    if (run.at(json::json_pointer(key)) != 1)
      throw Error(state + "from which no prompt is served twice; leave '" + key + "' at 1, and name a file with more " +
                  "prompts where they are too few");
}

}  // namespace

std::optional<bool> learns(const json& run, const Registries& registries) {
  try {
    return registries.policies.traits(run.at("policy"), ModelInfo()).learns ||
           registries.drafters.traits(run.at("drafter"), ModelInfo()).learns;
  } catch (const Error&) {
    return std::nullopt;  // its traits depend on the target
  }
}

std::string start_of(const json& run) { return run.at("workload").value("start", ""); }

void expect_start(const json& run, const Registries& registries, const std::string& where) {
  if (start_of(run).empty()) return;
  if (learns(run, registries) == false) throw Error(where + ": " + nothing_learns(run));
  if (knows_others(run)) expect_others(run, where);
  if (is_warm(run) && run.contains("trace"))
    throw Error(where +
                ": a trace is recorded from the cold state; leave out '/trace', or set '/workload/start' to \"cold\"");
}

void expect_start(const json& run, bool learns) {
  const std::string start = start_of(run);
  if (learns && start.empty())
    throw Error(
        "the drafter or the policy learns, which shows only when its models are loaded; say from which state it is "
        "measured: add the axis \"/workload/start\": [\"cold\", \"warm\"], or set one of them, or \"others\"");
  if (!learns && !start.empty()) throw Error(nothing_learns(run));
}

std::vector<std::string> starts_of(const json& run, const Registries& registries) {
  if (start_of(run).empty() && learns(run, registries) == true) return {"cold", "warm"};
  return {};
}

json started(json run, const std::string& start) {
  run["workload"]["start"] = start;
  if (is_warm(run)) run.erase("trace");
  return run;
}

}  // namespace foretoken

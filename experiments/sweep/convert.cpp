#include "experiments/sweep/convert.h"

#include <iterator>

#include "experiments/report/results.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

// What is not there already.
void add(json& object, const json& defaults) {
  if (object.is_object()) object.insert(defaults.begin(), defaults.end());
}

void drop_nulls(json& value) {
  if (value.is_object())
    for (auto it = value.begin(); it != value.end();) it = it->is_null() ? value.erase(it) : std::next(it);
  if (value.is_structured())
    for (json& inner : value) drop_nulls(inner);
}

// Keys and options that runs did not have from the beginning, with what they did before.
void complete_run_of_1(json& run, const Registries& registries) {
  if (run.contains("workload")) add(run["workload"], {{"turns", 1}, {"skip", 0}, {"lengths", "equal"}});
  if (run.contains("measure")) add(run["measure"], {{"keep_outputs", false}, {"busy", "refuse"}});
  try {
    json whole = run;
    whole["drafter"] = registries.drafters.complete(whole.at("drafter"));
    whole["policy"] = registries.policies.complete(whole.at("policy"));
    whole["verifier"] = registries.verifiers.complete(whole.at("verifier"));
    run = std::move(whole);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a plugin that is not loaded, or an option that is no more
  }
}

// Schema 1 left out lists that are empty, wrote null for what is absent, and lacked in early lines what was counted
// since: of these the values are those that figures took.
void from_1(json& line, const Registries& registries) {
  json run = std::move(line["run"]), axes = std::move(line["axes"]);
  drop_nulls(line);
  complete_run_of_1(run, registries);
  line["key"] = key_of(run);
  line["run"] = std::move(run);
  line["axes"] = axes.is_object() ? std::move(axes) : json::object();
  const json none = json::array();
  add(line, {{"sources", json::object()},
             {"models", json::object()},
             {"shared_baseline", false},
             {"two_speeds", none},
             {"failures", none},
             {"thrown_away", none},
             {"repeats", none}});
  for (json& repeat : line["repeats"])
    for (const char* name : {"baseline", "speculative"}) {
      json& side = repeat.at(name);
      add(side, {{"cut", 0}, {"no_draft", json::object()}, {"steps_of_rows", none}, {"gaps", json::object()}});
      for (json& request : side.at("requests")) add(request, {{"turn", 0}, {"first_tokens", 1}});
    }
  line["schema"] = 2;
}

}  // namespace

Result converted(json line, const Registries& registries, const std::string& where) {
  constexpr void (*kSteps[])(json&, const Registries&) = {from_1};  // from schema 1, 2, ...
  static_assert(std::size(kSteps) == kResultSchema - 1);
  const json schema = line.is_object() ? line.value("schema", json()) : json();
  if (!schema.is_number_integer() || schema < 1 || schema > kResultSchema || !line.contains("run"))
    throw Error(where + ": not a result line of a schema from 1 to " + std::to_string(kResultSchema) +
                "; name a file that `foretoken run` wrote");
  try {
    for (int from = schema; from < kResultSchema; ++from) kSteps[from - 1](line, registries);
  } catch (const json::exception& e) {
    throw Error(where + ": not a complete result line (" + reason_of(e) + "); remove it");
  }
  return result_of(line, where);
}

}  // namespace foretoken

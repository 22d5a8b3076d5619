#include <algorithm>
#include <cstdio>
#include <set>

#include "experiments/bench/bench_steps.h"
#include "experiments/session/run_document.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr int kMany = 1 << 20, kLongest = 64;  // of a draft, as in the policy `fixed`

void refuse_unknown(const json& object, const std::vector<std::string>& known, const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    std::string list, near = nearest(key, known);
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    throw Error(where + ": unknown key '" + key + "'" + (near.empty() ? "" : " (did you mean '" + near + "'?)") +
                "; known there: " + list);
  }
}

// The object of the run that an object of the scenario becomes.
json part(const Fields& fields, const char* key, json otherwise) {
  return fields.has(key) ? fields.object(key).all() : otherwise;
}

// Throws Error where keys of a scenario exclude each other.
void refuse_contradictions(const Fields& fields, const Scenario& scenario) {
  const bool whole = !scenario.attention && scenario.moves == 0;
  for (const char* key : {"children", "guessing"})
    if (fields.has(key) && (scenario.guesses == 0 || !whole))
      fields.refuse(key, "only a scenario of whole steps with \"guesses\" has guessed nodes");
  if (scenario.prompt && !whole)
    fields.refuse(scenario.attention ? "attention" : "moves", "this scenario measures a prompt; make it two scenarios");
  if (scenario.moves > 0 && (scenario.attention || scenario.guesses > 0))
    fields.refuse("moves", "compaction is measured alone; make it two scenarios");
  if (scenario.share > 0 && !scenario.attention)
    fields.refuse("share", "only a scenario with \"attention\": true has a share of the bandwidth");
  if (scenario.attention && scenario.bar_ms > 0)
    fields.refuse("bar_ms", "the bar of attention alone is \"share\", of the copy bandwidth");
  for (const char* key : {"verify_share", "host_share", "draft_most"})
    if (fields.has(key) && (!whole || scenario.prompt))
      fields.refuse(key, "only a scenario of whole steps that decode has this bar");
  if (fields.has("most") && scenario.over.empty())
    fields.refuse("most", "it is a bar of the quotient with the scenario named by \"over\"");
}

// The run document of a scenario, incomplete.
json run_of(const Fields& fields, const Scenario& scenario, const json& engine, const std::string& device) {
  json run{{"target", fields.object("target").all()},
           {"drafter", part(fields, "drafter", {{"name", "none"}})},
           {"engine", engine}};
  run["engine"].update(part(fields, "engine", json::object()));
  if (!device.empty()) run["engine"]["device"] = device;
  run["engine"]["batch"] = scenario.batch;
  run["policy"] = {{"name", "fixed"}, {"length", fields.integer_or("length", 0, kLongest, scenario.guesses)}};
  if (fields.has("nodes")) run["policy"]["nodes"] = fields.integer_or("nodes", 1, kMaxNodes, 1);
  if (fields.has("verifier")) run["verifier"] = fields.object("verifier").all();
  if (fields.has("sampling")) run["sampling"] = fields.object("sampling").all();
  run["workload"] = {{"prompts", "none"}, {"ignore_eos", true}};
  return run;
}

Scenario scenario_of(const json& object, const json& engine, const std::string& device, const Registries& registries,
                     const std::string& where) {
  const Fields fields(object, where);
  refuse_unknown(object, {"name",    "target",       "drafter",    "verifier",  "sampling", "engine",  "batch",
                          "context", "steps",        "guesses",    "children",  "guessing", "length",  "nodes",
                          "prompt",  "attention",    "moves",      "share",     "bar_ms",   "peer_ms", "over",
                          "most",    "verify_share", "host_share", "draft_most"},
                 where);
  Scenario scenario{fields.string("name"),
                    {},
                    fields.integer_or("batch", 1, 4096, 1),
                    fields.integer_or("context", 1, kMany, 1024),
                    fields.integer_or("steps", 1, kMany, 24),
                    fields.integer_or("guesses", 0, kLongest, 0),
                    fields.integer_or("children", 1, kLongest, 1),
                    fields.integer_or("guessing", 1, 4096, fields.integer_or("batch", 1, 4096, 1)),
                    fields.boolean_or("prompt", false),
                    fields.boolean_or("attention", false),
                    fields.integer_or("moves", 0, kLongest, 0),
                    fields.positive_or("share", 0),
                    fields.positive_or("bar_ms", 0),
                    fields.positive_or("peer_ms", 0),
                    fields.has("over") ? fields.string("over") : "",
                    fields.positive_or("most", 0),
                    fields.positive_or("verify_share", 0),
                    fields.positive_or("host_share", 0),
                    fields.positive_or("draft_most", 0)};
  refuse_contradictions(fields, scenario);
  scenario.run = complete_run(run_of(fields, scenario, engine, device), registries, where);
  if (scenario.guesses > 0)
    scenario.run["drafter"] = {{"name", "guesses"}, {"children", scenario.children}, {"guessing", scenario.guessing}};
  return scenario;
}

}  // namespace

std::vector<Scenario> read_scenarios(const std::string& file, const std::string& only, const std::string& device,
                                     const Registries& registries) {
  const json document = read_document(file);
  const Fields fields(document, file);
  refuse_unknown(document, {"engine", "scenarios"}, file);
  const json engine = part(fields, "engine", json::object());
  std::vector<Scenario> scenarios;
  std::set<std::string> before;
  int number = 0;
  for (const json& object : fields.array("scenarios")) {
    const std::string name = object.is_object() && object.contains("name") && object["name"].is_string()
                                 ? object["name"].get<std::string>()
                                 : "";
    ++number;
    const std::string where = file + ": scenario " + (name.empty() ? std::to_string(number) : "'" + name + "'");
    if (name.empty() || name.find(only) != std::string::npos) {
      scenarios.push_back(scenario_of(object, engine, device, registries, where));
      if (const std::string& over = scenarios.back().over; !over.empty() && !before.contains(over))
        throw Error(where + ": over: no scenario '" + over + "' stands before this one");
    }
    before.insert(name);
  }
  if (scenarios.empty())
    throw Error("no scenario of " + file + " has '" + only + "' in its name; leave out --only to measure all " +
                std::to_string(number));
  return scenarios;
}

namespace {

using nlohmann::json;

const char* verdict(bool met) { return met ? "met" : "MISSED"; }

std::string figure(double v) {
  char text[32];
  return std::snprintf(text, sizeof text, "%.4g", v), text;
}

}  // namespace

std::string ScenarioBars::judge(const Scenario& s, const ScenarioTimes& times, json& line) {
  json bars = json::array();
  std::string text;
  const auto judged = [&](const std::string& bar, const std::string& of, double value, double most) {
    if (!text.empty()) text += "; ";
    text += figure(value) + " of " + of;
    if (most > 0) text += " (at most " + figure(most) + ": " + verdict(value <= most) + ")";
    json j{{"bar", bar}, {"value", value}};
    if (most > 0) j["most"] = most, j["met"] = value <= most;
    bars.push_back(j);
  };
  if (s.bar_ms > 0) {
    text = verdict(times.ms <= s.bar_ms);
    bars.push_back({{"bar", "ms"}, {"value", times.ms}, {"most", s.bar_ms}, {"met", times.ms <= s.bar_ms}});
  }
  if (const auto other = ms_.find(s.over); other != ms_.end()) {
    judged("over", "'" + s.over + "'", times.ms / other->second, s.most);
    bars.back()["over"] = s.over;
  }
  if (s.verify_share > 0) judged("verify_share", "the step verifies", times.verify_ms / times.ms, s.verify_share);
  if (s.host_share > 0) judged("host_share", "the step is the host's", times.host_ms / times.ms, s.host_share);
  if (s.draft_most > 0 && times.draft_forward_ms > 0)
    judged("draft_most", "the draft's forwards", times.draft_ms / times.draft_forward_ms, s.draft_most);
  ms_[s.name] = times.ms;
  if (!bars.empty()) line["bars"] = bars;
  return text;
}

}  // namespace foretoken

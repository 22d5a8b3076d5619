#include "experiments/costs/costs_file.h"

#include <cmath>
#include <filesystem>
#include <set>

#include "experiments/quantize/safetensors_file.h"
#include "experiments/report/machine.h"
#include "experiments/report/summary.h"
#include "experiments/session/measured_pair.h"
#include "experiments/session/request.h"
#include "foretoken_version.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

json costs_document(const CostModel& costs, const json& run, const Backend& backend) {
  json document = costs.document();
  document.update(pair_of(run));
  for (const char* part : {"verifier", "sampling"}) document[part] = run.at(part);
  for (const char* key : {"device", "threads", "numerics", "page_rows"})
    document["engine"][key] = run.at("engine").at(key);
  const CostError error = costs.cross_validation();
  document["error"] = {{"median", finite(error.median)}, {"worst", finite(error.worst)}};
  document["machine"] = to_json(machine_of(backend));
  document["version"] = kVersion;
  document["commit"] = kCommit;
  document["date"] = utc_now();
  return document;
}

void expect_costs_place(const std::string& out) {
  if (out.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(out).parent_path();
  if (std::error_code error; !folder.empty() && !std::filesystem::is_directory(folder, error))
    throw Error("the folder of --out " + out + " does not exist; make it, or name another file");
  if (!has_file(out)) return;
  const json older = json::parse(read_file(out), nullptr, false);
  if (!older.is_object() || older.value("kind", json()) != kCostsKind)
    throw Error(out + " exists and is no file of costs; name another file with --out");
}

void write_costs(const std::string& out, const json& document) { write_whole(out, document.dump(1) + "\n"); }

CostsFile CostsFile::read(const std::string& file) {
  const std::filesystem::path path = locate(file);
  json document = read_json(path);
  CostModel costs = CostModel::read(document, file);
  return {file, std::move(document), std::move(costs)};
}

json CostsFile::differences(const json& run) const {
  json found = json::array();
  for (const char* part : {"verifier", "sampling", "engine"}) {
    const json here = document.value(part, json()), there = run.value(part, json());
    if (!here.is_object() || !there.is_object()) continue;
    const bool renamed = here.contains("name") && there.contains("name") && here["name"] != there["name"];
    for (const auto& [key, value] : here.items()) {
      if (key == "seed" || key == "samples" || (renamed && key != "name")) continue;  // options follow from the name
      if (there.contains(key) && there[key] != value)
        found.push_back({{"key", std::string("/") + part + "/" + key}, {"costs", value}, {"run", there[key]}});
    }
  }
  return found;
}

std::string CostsFile::differences_text(const std::vector<json>& runs) const {
  std::set<std::string> sentences;
  for (const json& run : runs)
    for (const json& one : differences(run))
      sentences.insert(" '" + one["key"].get<std::string>() + "' is " + shown(one["costs"]) + " in the costs, and " +
                       shown(one["run"]) + " here.");
  std::string text;
  for (const std::string& sentence : sentences) text += sentence;
  return text;
}

std::string CostsFile::machine() const {
  if (const json source = document.value("source", json()); source.is_string()) return source;
  const json machine = document.value("machine", json());
  if (machine.is_string()) return machine;
  if (!machine.is_object()) return "a machine that the file does not name";
  const json description = machine.value("description", json()), cpu = machine.value("cpu", json());
  if (machine.value("device", json()) == "cuda" && description.is_string())
    return description.get<std::string>().substr(0, description.get<std::string>().find(','));
  return cpu.is_string() ? cpu.get<std::string>() : "a machine that the file does not name";
}

}  // namespace foretoken

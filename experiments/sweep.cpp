#include "experiments/sweep.h"

#include <xxhash.h>

#include <set>

#include "experiments/run_document.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

std::string key_of(const json& run) {
  const std::string text = run.dump();  // keys of json are sorted
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH3_64bits(text.data(), text.size())));
  return hex;
}

namespace {

json::json_pointer pointer(const std::string& text, const std::string& where) {
  try {
    return json::json_pointer(text);
  } catch (const json::exception&) {
    throw Error(where + ": '" + text + "' is no JSON pointer; write it as /policy/length");
  }
}

void set(json& base, const std::string& setting, const std::string& where) {
  const auto equals = setting.find('=');
  if (equals == std::string::npos) throw Error("--set wants POINTER=VALUE, as in --set /engine/batch=1, not '" + setting + "'");
  const std::string value = setting.substr(equals + 1);
  json parsed = json::parse(value, nullptr, false);
  base[pointer(setting.substr(0, equals), where)] = parsed.is_discarded() ? json(value) : parsed;
}

struct Axis {
  std::string text;
  json::json_pointer at;
  json values;
};

std::vector<Axis> axes_of(const nlohmann::ordered_json& document, const std::string& where) {
  std::vector<Axis> axes;
  if (!document.contains("axes")) return axes;
  if (!document["axes"].is_object()) throw Error(where + ": 'axes' must be an object of JSON pointers with lists of values");
  for (const auto& [text, values] : document["axes"].items()) {
    if (!values.is_array() || values.empty()) throw Error(where + ": the axis '" + text + "' must be a list of at least one value");
    axes.push_back({text, pointer(text, where), json(values)});
  }
  return axes;
}

}  // namespace

std::vector<Cell> expand(const nlohmann::ordered_json& document, const std::vector<std::string>& settings, const Registries& registries, const std::string& where) {
  if (!document.is_object()) throw Error(where + ": a run or a sweep must be a JSON object, not " + shown(json(document)));
  const bool sweep = document.contains("base");
  if (sweep)
    for (const auto& [key, value] : document.items())
      if (key != "base" && key != "axes" && key != "name")
        throw Error(where + ": unknown key '/" + key + "' of a sweep" + (nearest(key, {"base", "axes", "name"}).empty() ? "" : " (did you mean '/" + nearest(key, {"base", "axes", "name"}) + "'?)") + "; known there: base, axes, name");
  json base = sweep ? json(document["base"]) : json(document);
  if (!base.is_object()) throw Error(where + ": 'base' must be a run, a JSON object, not " + shown(base));
  for (const auto& s : settings) set(base, s, where);
  const std::vector<Axis> axes = sweep ? axes_of(document, where) : std::vector<Axis>{};

  std::vector<Cell> cells;
  std::set<std::string> seen;
  std::vector<std::size_t> at(axes.size(), 0);
  for (bool more = true; more;) {
    json run = base, values = json::object();
    for (std::size_t i = 0; i < axes.size(); ++i) run[axes[i].at] = values[axes[i].text] = axes[i].values[at[i]];
    Cell cell{complete_run(run, registries, where), values, ""};
    cell.key = key_of(cell.run);
    if (seen.insert(cell.key).second) cells.push_back(std::move(cell));
    more = false;
    for (std::size_t i = axes.size(); i-- > 0 && !more;)
      if (++at[i] < axes[i].values.size()) more = true;
      else at[i] = 0;
  }
  return cells;
}

}  // namespace foretoken

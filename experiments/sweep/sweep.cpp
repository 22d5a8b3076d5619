#include "experiments/sweep/sweep.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "experiments/report/published.h"
#include "experiments/session/run_document.h"
#include "experiments/session/sweep_names.h"
#include "framework/text/json_file.h"
#include "framework/text/known_names.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

json::json_pointer pointer(const std::string& text, const std::string& where) {
  const Error bad(where + ": '" + text + "' is not a JSON pointer; write it as /policy/length");
  if (text.empty()) throw bad;
  try {
    return json::json_pointer(text);
  } catch (const json::exception&) {
    throw bad;
  }
}

// What stands where a pointer leads further and the document has nothing yet: a list where the key is one.
json container(const std::string& pointer) {
  const auto key = std::ranges::find(run_keys(), pointer, &RunKey::pointer);
  return key != run_keys().end() && key->standard.is_array() ? json::array() : json::object();
}

// An entry of a list by its index or "-"; the one after the last is new.
json& entry(json& list, const std::string& index, const std::string& at, const std::string& where) {
  std::size_t i = 0;
  const char* const end = index.data() + index.size();
  const bool number = std::from_chars(index.data(), end, i).ptr == end && index == std::to_string(i);
  if (index == "-") i = list.size();
  if (!(number || index == "-") || i > list.size())
    throw Error(where + ": '" + at + "' names no place in a list of " + std::to_string(list.size()) +
                "; take an index from 0 to " + std::to_string(list.size()) + ", where the last one appends");
  if (i == list.size()) list.push_back(nullptr);
  return list[i];
}

void put(json& document, const std::string& at, const json& value, const std::string& where) {
  const json::json_pointer place = pointer(at, where);
  if (at.starts_with("/plugins"))
    throw Error(where + ": '/plugins' cannot be varied, since they are loaded before any run; name all of them with " +
                "--plugin or in the base");
  std::vector<std::string> tokens;
  for (json::json_pointer rest = place; !rest.empty(); rest.pop_back()) tokens.insert(tokens.begin(), rest.back());
  json* here = &document;
  std::string path;
  for (const std::string& token : tokens) {
    if (here->is_null()) *here = container(path);
    if (!here->is_structured())
      throw Error(where + ": a run has no key '" + at + "'; foretoken keys lists those there are");
    here = here->is_array() ? &entry(*here, token, at, where) : &(*here)[token];
    path += "/" + token;
  }
  *here = value;
}

// A run is found by the hash of its text, which is UTF-8: other bytes would be replaced, and runs that differ in them
// would be one.
void expect_utf8(const json& run, const std::string& where) {
  const auto broken = [](const std::string& text) { return replace_broken_utf8(text) != text; };
  const json leaves = run.flatten();
  for (const auto& [pointer, value] : leaves.items())
    if (broken(pointer) || (value.is_string() && broken(value)))
      throw Error(where + ": '" + pointer + "' is " + shown(value) +
                  ", which is no valid UTF-8; rename what it names, or write it in UTF-8");
}

std::string pointer_of(const std::string& setting) {
  const auto equals = setting.find('=');
  if (equals == std::string::npos)
    throw Error("--set wants POINTER=VALUE, as in --set /engine/batch=1, not '" + setting + "'");
  return setting.substr(0, equals);
}

struct Axis {
  std::string pointer;
  json values;
  std::size_t group;  // axes of one group are walked together: all have as many values
};

bool inside(const std::string& pointer, const std::string& parent) { return pointer.starts_with(parent + "/"); }

// An axis may vary a key of an object that another axis sets, but only if that object lacks the key: else one of them
// would have no effect.
void refuse_overlaps(const std::vector<Axis>& axes, const std::string& where) {
  for (const Axis& inner : axes)
    for (const Axis& outer : axes) {
      if (!inside(inner.pointer, outer.pointer)) continue;
      const json::json_pointer rest(inner.pointer.substr(outer.pointer.size()));
      for (const json& value : outer.values)
        if (!value.is_object() || value.contains(rest))
          throw Error(where + ": the axes '" + outer.pointer + "' and '" + inner.pointer + "' overlap: the value " +
                      shown(value) + " of the first would be overwritten by the second; take one of the axes out" +
                      (value.is_object() ? ", or '" + inner.pointer + "' out of that value" : ""));
    }
}

void add_axis(std::vector<Axis>& axes, Axis axis, const std::string& where) {
  if (!axis.values.is_array() || axis.values.empty())
    throw Error(where + ": the axis '" + axis.pointer + "' must be a list of at least one value");
  pointer(axis.pointer, where);
  for (const Axis& other : axes) {
    if (other.pointer == axis.pointer)
      throw Error(where + ": the axis '" + axis.pointer + "' stands in two objects of 'axes'; take one of them out");
    if (other.group == axis.group && other.values.size() != axis.values.size())
      throw Error(where + ": the axes '" + other.pointer + "' and '" + axis.pointer +
                  "' are walked together, but have " + std::to_string(other.values.size()) + " and " +
                  std::to_string(axis.values.size()) + " values; give both as many, or an object of 'axes' each");
  }
  axes.push_back(std::move(axis));
}

// An object of independent axes, or a list of objects, each of axes that are walked together.
std::vector<Axis> axes_of(const nlohmann::ordered_json& document, const std::string& where) {
  std::vector<Axis> axes;
  if (!document.contains("axes")) return axes;
  const nlohmann::ordered_json& all = document["axes"];
  const auto expect_object = [&](const nlohmann::ordered_json& value) {
    if (!value.is_object())
      throw Error(where +
                  ": 'axes' must be an object of JSON pointers with lists of values, or a list of such objects");
  };
  std::size_t group = 0;
  if (!all.is_array()) {
    expect_object(all);
    for (const auto& [text, values] : all.items()) add_axis(axes, {text, json(values), group++}, where);
  } else {
    for (const nlohmann::ordered_json& together : all) {
      expect_object(together);
      for (const auto& [text, values] : together.items()) add_axis(axes, {text, json(values), group}, where);
      ++group;
    }
  }
  refuse_overlaps(axes, where);
  return axes;
}

// How many values the axes of each group have.
std::vector<std::size_t> sizes_of(const std::vector<Axis>& axes) {
  std::vector<std::size_t> sizes;
  for (const Axis& a : axes) {
    if (sizes.size() <= a.group) sizes.resize(a.group + 1, 1);
    sizes[a.group] = a.values.size();
  }
  return sizes;
}

// One combination: the chosen value of each group. Parents are set before children, so both axes of {"/drafter": ...,
// "/drafter/model": ...} take effect.
Run combine(json document, const std::vector<Axis>& axes, const std::vector<std::size_t>& chosen,
            const Registries& registries, const std::string& where) {
  std::vector<std::size_t> order(axes.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return std::ranges::count(axes[i].pointer, '/'); });
  Run run;
  run.axes = json::object();
  std::string with;
  for (const std::size_t i : order) {
    const json& value = axes[i].values[chosen[axes[i].group]];
    put(document, axes[i].pointer, value, where);
    run.axes[axes[i].pointer] = value;
    with += (with.empty() ? ", with " : ", ") + axes[i].pointer + " = " + shown(value);
  }
  run.document = complete_run(document, registries, where + with);
  expect_utf8(run.document, where + with);
  run.key = key_of(run.document);
  return run;
}

// The states that a complete run is measured from: "cold" and "warm" where something learns and it names none; else
// none.
std::vector<std::string> starts_of(const json& run, const Registries& registries) {
  if (start_of(run).empty() && learns(run, registries) == true) return {"cold", "warm"};
  return {};
}

// The run from that state. A trace is recorded from the cold one alone.
json started(json run, const std::string& start) {
  run["workload"]["start"] = start;
  if (is_warm(run)) run.erase("trace");
  return run;
}

// One run, or from each state where its drafter or policy learns.
std::vector<Run> from_each_start(Run run, const Registries& registries) {
  std::vector<Run> runs;
  for (const std::string& start : starts_of(run.document, registries)) {
    Run& one = runs.emplace_back(run);
    one.document = started(std::move(one.document), start);
    one.axes["/workload/start"] = start;
    one.key = key_of(one.document);
  }
  if (runs.empty()) runs.push_back(std::move(run));
  return runs;
}

// A bound on the product of the axes, since a mistake could fill the memory with runs.
void expect_few(const std::vector<std::size_t>& sizes, std::size_t most, const std::string& where) {
  std::size_t runs = 1;
  for (const std::size_t size : sizes)
    if (__builtin_mul_overflow(runs, size, &runs) || runs > most)
      throw Error(where + ": the axes multiply to more than " + std::to_string(most) +
                  " runs; shorten the lists, or divide the sweep into several files");
}

bool next(std::vector<std::size_t>& chosen, const std::vector<std::size_t>& sizes) {
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (++chosen[i] < sizes[i]) return true;
    chosen[i] = 0;
  }
  return false;
}

void refuse_unknown(const nlohmann::ordered_json& sweep, const std::string& where) {
  static const std::vector<std::string> kKnown = {"base", "axes", "names", "stand_ins", "published"};
  for (const auto& [key, value] : sweep.items()) {
    if (std::ranges::find(kKnown, key) != kKnown.end()) continue;
    const std::string near = nearest(key, kKnown);
    throw Error(where + ": unknown key '/" + key + "' of a sweep" +
                (near.empty() ? "" : " (did you mean '/" + near + "'?)") +
                "; known there: " + foretoken::listed(kKnown));
  }
}

bool sets_a_name(const std::string& setting) { return setting.starts_with("/names/"); }

// The base and the values of all axes with what names stand for. One that is used nowhere is an Error, since changing
// it would have no effect.
void put_names(const json& names, json& base, std::vector<Axis>& axes, const std::string& where) {
  std::set<std::string> used;
  base = with_names(base, names, where, &used);
  for (Axis& axis : axes) axis.values = with_names(axis.values, names, where, &used);
  for (const auto& [name, unused] : names.items())
    if (!used.contains(name))
      throw Error(where + ": its name '" + name + "' is used nowhere; write \"@" + name +
                  "\" where it belongs, or leave it out of \"names\"");
}

// Each would set the other's trace aside.
void refuse_shared_traces(const std::vector<Run>& runs, const std::string& where) {
  std::set<std::string> files;
  for (const Run& run : runs)
    if (run.document.contains("trace") && !files.insert(trace_file(run)).second)
      throw Error(where + ": several runs of this sweep would write the trace " + trace_file(run) +
                  "; put {key} into the name of its file, which each run replaces by its own key");
}

}  // namespace

std::string trace_file(const Run& run) {
  std::string file = run.document.at("trace").at("file");
  const std::string mark = "{key}";
  for (std::size_t at; (at = file.find(mark)) != std::string::npos;) file.replace(at, mark.size(), run.key);
  return file;
}

std::string sweep_name(const std::filesystem::path& document, const std::vector<std::string>& settings) {
  json name{std::filesystem::weakly_canonical(document).string()};
  for (const std::string& setting : settings) name.push_back(setting);
  return name.dump(-1, ' ', true, json::error_handler_t::replace);
}

void put_setting(json& document, const std::string& setting, const std::string& where) {
  const std::string at = pointer_of(setting), value = setting.substr(at.size() + 1);
  json parsed;
  try {
    parsed = parse_json(value, where);
  } catch (const Error&) {
    parsed = value;  // a value that is not JSON is a string
  }
  if (replace_broken_utf8(setting) != setting)
    throw Error(where + ": --set " + setting + " is no valid UTF-8; write it in UTF-8, or rename what it names");
  put(document, at, parsed, where);
}

json named_values(const nlohmann::ordered_json& document, const std::vector<std::string>& settings,
                  const std::string& where) {
  json names = document.contains("names") ? json(document["names"]) : json::object();
  if (!names.is_object())
    throw Error(where + ": 'names' must be an object of names with a value each, not " + shown(names));
  for (const std::string& setting : settings) {
    if (!sets_a_name(setting)) continue;
    std::vector<std::string> known;
    for (const auto& [name, unused] : names.items()) known.push_back(name);
    const json::json_pointer at = pointer(pointer_of(setting), where);
    const std::string name = at.parent_pointer().to_string() == "/names" ? at.back() : "";
    if (!names.contains(name))
      throw Error(where + ": --set " + pointer_of(setting) + " sets none of its names" + suggestion(name, known) +
                  (known.empty() ? ", since it has none" : ": they are " + listed(known)));
    json all{{"names", names}};
    put_setting(all, setting, where);
    names = std::move(all["names"]);
  }
  return names;
}

std::vector<std::string> stand_ins(const nlohmann::ordered_json& document, const std::string& where) {
  if (!document.is_object() || !document.contains("stand_ins")) return {};
  std::vector<std::string> found;
  const nlohmann::ordered_json& all = document["stand_ins"];
  for (const auto& setting : all.is_array() ? all : nlohmann::ordered_json::array({all})) {
    if (!all.is_array() || !setting.is_string() || setting.get_ref<const std::string&>().find('=') == std::string::npos)
      throw Error(where + ": 'stand_ins' must be a list of POINTER=VALUE, as --set takes them, not " +
                  shown(json(setting)));
    found.push_back(setting);
  }
  return found;
}

std::vector<Run> expand(const nlohmann::ordered_json& document, const std::vector<std::string>& settings,
                        const Registries& registries, const std::string& where, std::size_t most_runs) {
  if (!document.is_object())
    throw Error(where + ": a run or a sweep must be a JSON object, not " + shown(json(document)));
  const bool sweep = document.contains("base");
  if (sweep) refuse_unknown(document, where);
  json base = sweep ? json(document["base"]) : json(document);
  std::vector<Axis> axes = sweep ? axes_of(document, where) : std::vector<Axis>{};
  const json names = sweep ? named_values(document, settings, where) : json::object();
  if (sweep) published_of(document, where), stand_ins(document, where);
  for (const std::string& setting : settings) {
    if (sweep && sets_a_name(setting)) continue;
    const std::string at = pointer_of(setting);
    for (const Axis& axis : axes)
      if (axis.pointer == at || inside(at, axis.pointer))
        throw Error(where + ": '" + axis.pointer + "' is an axis of this sweep, so --set " + at +
                    " would have no effect; take it out of \"axes\" before setting it");
    put_setting(base, setting, where);
  }
  put_names(names, base, axes, where);
  const std::vector<std::size_t> sizes = sizes_of(axes);
  expect_few(sizes, most_runs, where);
  std::vector<Run> runs;
  std::set<std::string> seen;
  std::vector<std::size_t> chosen(sizes.size(), 0);
  do {
    for (Run& run : from_each_start(combine(base, axes, chosen, registries, where), registries))
      if (seen.insert(run.key).second) runs.push_back(std::move(run));
  } while (next(chosen, sizes));
  refuse_shared_traces(runs, where);
  return runs;
}

}  // namespace foretoken

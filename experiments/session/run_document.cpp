#include "experiments/session/run_document.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "experiments/session/arrival_rate.h"
#include "experiments/session/response_format.h"
#include "framework/decode/sequence.h"
#include "framework/model/model.h"
#include "framework/model/model_choice.h"
#include "framework/text/date.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

// Of a plugin: "lib.so", or {"path": "lib.so", "hash": ...} in a complete run; "" for anything else.
std::string path_of(const json& plugin) {
  const json& path = plugin.is_object() ? plugin.value("path", json()) : plugin;
  return path.is_string() ? path.get<std::string>() : "";
}

// {"17": -100, "4": 2.5}: token ids without leading zeros, so that one token has one name.
bool are_biases(const json& v, const RunKey& k) {
  if (!v.is_object()) return false;
  for (const auto& [token, bias] : v.items()) {
    const bool digits =
        !token.empty() && token.size() <= 9 && std::ranges::all_of(token, [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || (token.size() > 1 && token[0] == '0') || !bias.is_number()) return false;
    if (bias.get<double>() < k.allowed.least || bias.get<double>() > k.allowed.most) return false;
  }
  return true;
}

bool fits(const json& v, const RunKey& k) {
  if (v.is_null()) return k.allowed.optional;
  if (k.type == "integer" || k.type == "number") {
    if (!(k.type == "integer" ? v.is_number_integer() : v.is_number())) return false;
    const double x = v.get<double>();
    return (k.allowed.above ? x > k.allowed.least : x >= k.allowed.least) &&
           (k.allowed.below ? x < k.allowed.most : x <= k.allowed.most);
  }
  if (k.type == "biases") return are_biases(v, k);
  if (k.type == "boolean") return v.is_boolean();
  if (k.type == "component" || k.type == "object") return v.is_object();
  if (k.type == "list") return v.is_array();
  if (k.type == "strings")
    return v.is_array() && std::ranges::all_of(v, [](const json& s) { return s.is_string() && s != ""; });
  if (k.type == "plugins")
    return v.is_array() && std::ranges::all_of(v, [](const json& p) { return !path_of(p).empty(); });
  if ((k.type == "model" || k.type == "trace") && v.is_object()) return true;
  if (!v.is_string() || v == "") return false;
  return k.allowed.choices.empty() ||
         std::ranges::find(k.allowed.choices, v.get<std::string>()) != k.allowed.choices.end();
}

[[noreturn]] void refuse(const RunKey& k, const json& value, const std::string& where) {
  const std::string range = range_of(k), among = range.empty()               ? ""
                                                 : k.allowed.choices.empty() ? " " + range
                                                                             : ", one of " + range;
  throw Error(where + ": '" + k.pointer + "' must be " + k.type + among + " (" + k.meaning + "), not " + shown(value));
}

// 1.0 and 1 are one number and must be one text.
void normalize(json& value) {
  if (value.is_structured()) {
    for (auto& v : value) normalize(v);
  } else if (value.is_number_float()) {
    const double x = value.get<double>();
    if (x == std::floor(x) && std::abs(x) < 9e15) value = std::int64_t(x);
  }
}

// Whether the key is an object whose own keys are not among run_keys().
bool is_whole(const std::string& pointer) {
  return std::ranges::any_of(run_keys(), [&](const RunKey& k) {
    return (k.type == "component" || k.type == "trace") && k.pointer == pointer;
  });
}

// A run that was measured with a plugin is not repeated with another.
void expect_hashes(const json& plugins, const Registries& registries, const std::string& where) {
  for (const json& p : plugins) {
    if (!p.is_object() || !p.contains("hash")) continue;
    if (std::ranges::none_of(registries.plugins, [&](const PluginFile& file) { return p["hash"] == file.hash; }))
      throw Error(where + ": the plugin " + path_of(p) + " is not the one that this run names, whose hash is " +
                  shown(p["hash"]) + "; take out the hash to run it with the present one");
  }
}

// The plugins that the components of a run come from: its identity holds no others.
json plugins_used(const json& run, const Registries& registries) {
  const std::set<std::string> used = component_files(run, registries).plugins;
  json all = json::array();
  for (const PluginFile& file : registries.plugins)
    if (used.contains(file.path)) all.push_back({{"path", file.path}, {"hash", file.hash}});
  return all;
}

void refuse_unknown(const json& document, const std::string& at, const std::string& where) {
  std::vector<std::string> known;  // of this level
  for (const RunKey& k : run_keys())
    if (k.pointer.starts_with(at + "/")) {
      const std::string rest = k.pointer.substr(at.size() + 1), name = rest.substr(0, rest.find('/'));
      if (std::ranges::find(known, name) == known.end()) known.push_back(name);
    }
  for (const auto& [key, value] : document.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      std::string list, near = nearest(key, known);
      for (const auto& n : known) list += (list.empty() ? "" : ", ") + n;
      throw Error(where + ": unknown key '" + at + "/" + key + "'" +
                  (near.empty() ? "" : " (did you mean '" + at + "/" + near + "'?)") + "; known there: " + list);
    }
    const std::string below = at + "/" + key;
    if (is_whole(below)) continue;
    const bool group =
        std::ranges::any_of(run_keys(), [&](const RunKey& k) { return k.pointer.starts_with(below + "/"); });
    if (group && !value.is_object()) throw Error(where + ": '" + below + "' must be an object, not " + shown(value));
    if (group) refuse_unknown(value, below, where);
  }
}

// In one form for equal choices: the shape and the types are in keys of their own.
void complete_target(json& target) {
  const json& kv = target["kv_dtype"];
  ModelChoice choice =
      ModelChoice::read(target["model"], target["inflate"], target["dtype"], kv == "auto" ? json("target") : kv);
  target["dtype"] = std::exchange(choice.dtype, "auto");
  if (choice.kv_dtype != "target") target["kv_dtype"] = std::exchange(choice.kv_dtype, "target");
  if (!choice.inflate.empty()) target["inflate"] = std::exchange(choice.inflate, "");
  target["model"] = choice.document();
}

// Refuses verifiers that cannot judge what the drafter draws, and a dense trace of drafts that confidence ends.
void expect_traceable(const json& run, const Registries& registries) {
  if (run["trace"]["dense"] == true && registries.policies.traits(run["policy"], ModelInfo()).most.confidence > 0)
    throw Error(
        "'/trace/dense' is of drafts that other policies would have cut, but the policy " +
        shown(run["policy"]["name"]) +
        " ends them itself by the draft's confidence; leave its confidence out, or set '/trace/dense' to false");
  const std::vector<Drawn> drawn = registries.drafters.traits(run["drafter"], ModelInfo()).proposes;
  for (const std::string name : run["trace"]["verifiers"]) {
    const bool own = run["verifier"]["name"] == name;
    const json verifier = own ? run["verifier"] : json{{"name", name}};
    expect_followed(registries.verifiers.traits(verifier, ModelInfo()), name, drawn);
  }
}

void expect_format(const json& run, const std::string& where) {
  try {
    expect_response_format(run["sampling"].value("response_format", json()));
  } catch (const Error& e) {
    throw Error(where + ": '/sampling/response_format': " + e.what());
  }
}

// What belongs to an open loop and stands without one, and what an open loop cannot have.
void expect_loop(const json& run, const std::string& where) {
  const json& w = run["workload"];
  if (w.contains("rate") && w.contains("rates"))
    throw Error(where +
                ": '/workload/rate' is one rate at all times, and '/workload/rates' is another in each piece of time; "
                "leave one of them out");
  if (w.contains("rates"))
    if (const std::string refusal = refusal_of_rates(w["rates"]); !refusal.empty()) throw Error(where + ": " + refusal);
  const std::string key = rate_key_of(run);
  for (const std::string limit : {"ttft_limit", "tpot_limit"})
    if (w.contains(limit) && key.empty())
      throw Error(
          where + ": '/workload/" + limit +
          "' is a limit of requests that arrive at a rate; give '/workload/rate' or '/workload/rates', or leave "
          "it out");
  if (!key.empty() && run["sampling"]["samples"] != 1)
    throw Error(where + ": '" + key +
                "' draws the arrival of every request, and samples of a prompt would arrive together; leave out "
                "'/sampling/samples', or serve each prompt several times with '/workload/repeats'");
  if (!key.empty() && w["turns"] != 1)
    throw Error(where + ": '" + key +
                "' draws the arrival of every request, and a later turn arrives when the one before was answered; set "
                "'/workload/turns' to 1, or leave out '" +
                key + "'");
}

// One device is what a run has that does not say.
void complete_parallel(json& run) {
  const Parallel p = parallel_of(run);
  run.erase("parallel");
  if (p.tensor > 1) run["parallel"]["tensor"] = p.tensor;
  if (p.expert > 1) run["parallel"]["expert"] = p.expert;
}

void expect_parallel(const json& run, const std::string& where) {
  const Parallel p = parallel_of(run);
  if (p.tensor % p.expert != 0)
    throw Error(where + ": '/parallel/expert' is " + std::to_string(p.expert) + ", which does not divide " +
                "'/parallel/tensor', " + std::to_string(p.tensor) + "; each group of experts has as many devices");
  if (p.tensor > 1 && run.contains("trace"))
    throw Error(where + ": a trace is recorded on one device; leave out '/trace' or '/parallel'");
}

// A file name, or an object, as an object with all of its keys.
json complete_trace(const json& given, const Registries& registries) {
  static const std::vector<std::string> known{"file", "dense", "verifiers"};
  json trace = given.is_object() ? given : json{{"file", given}};
  for (const auto& [key, value] : trace.items())
    if (std::ranges::find(known, key) == known.end()) {
      const std::string near = nearest(key, known);
      throw Error("unknown key '/trace/" + key + "'" + (near.empty() ? "" : " (did you mean '/trace/" + near + "'?)") +
                  "; known there: file, dense, verifiers");
    }
  trace.emplace("dense", false), trace.emplace("verifiers", json::array());
  if (!trace.contains("file") || !trace["file"].is_string() || trace["file"] == "")
    throw Error("'/trace/file' is missing (the file that the trace is written to)");
  if (!trace["dense"].is_boolean()) throw Error("'/trace/dense' must be true or false, not " + shown(trace["dense"]));
  const json& names = trace["verifiers"];
  if (!names.is_array() || !std::ranges::all_of(names, [](const json& n) { return n.is_string(); }))
    throw Error("'/trace/verifiers' must be a list of names, not " + shown(names));
  for (const json& name : names) (void)registries.verifiers.find({{"name", name}});
  return trace;
}

// Refuses what no key alone shows to be wrong.
void expect_consistent(const json& run, const std::string& where) {
  if (!is_temperature(run["sampling"]["temperature"]))
    throw Error(where + ": '/sampling/temperature' is " + shown(run["sampling"]["temperature"]) +
                ", which is too small to divide by; use 0 for greedy decoding");
  if (run["workload"].contains("date"))
    Date::parse(run["workload"]["date"].get<std::string>(), where + ": '/workload/date'");
  if (run.contains("trace") && run["workload"]["turns"] != 1)
    throw Error(where +
                ": a trace is of requests whose prompts are known, not of conversations; set '/workload/turns' to 1");
  if (run["workload"].contains("prompt_tokens") && run["workload"]["turns"] != 1)
    throw Error(
        where +
        ": '/workload/prompt_tokens' is the length of a prompt, and those of later turns follow from outputs; set "
        "'/workload/turns' to 1, or leave out the length");
  if (run["engine"]["step_rows"] != 0 && run["engine"]["step_rows"] < run["engine"]["batch"])
    throw Error(where + ": '/engine/step_rows' must be at least '/engine/batch'; raise it to " +
                run["engine"]["batch"].dump() + " or more, or leave it out");
}

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

ComponentFiles component_files(const json& run, const Registries& registries) {
  ComponentFiles all;
  for (const ComponentFiles& files :
       {registries.drafters.files(run.at("drafter")), registries.policies.files(run.at("policy")),
        registries.verifiers.files(run.at("verifier"))}) {
    all.models.insert(all.models.end(), files.models.begin(), files.models.end());
    all.heads.insert(all.heads.end(), files.heads.begin(), files.heads.end());
    all.paths.insert(all.paths.end(), files.paths.begin(), files.paths.end());
    all.plugins.insert(files.plugins.begin(), files.plugins.end());
  }
  return all;
}

std::optional<bool> learns(const json& run, const Registries& registries) {
  try {
    return registries.policies.traits(run.at("policy"), ModelInfo()).learns ||
           registries.drafters.traits(run.at("drafter"), ModelInfo()).learns;
  } catch (const Error&) {
    return std::nullopt;  // its traits depend on the target
  }
}

Parallel parallel_of(const json& run) {
  const json p = run.value("parallel", json::object());
  return {p.value("tensor", 1), p.value("expert", 1)};
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

void expect_followed(const Soundness& soundness, const std::string& name, std::span<const Drawn> drawn) {
  if (soundness.race)
    throw Error("the acceptance of '" + name + "' follows from the noise of its races, not from distributions; leave " +
                "it out of /trace/verifiers");
  for (const Drawn d : drawn)
    if (std::ranges::find(soundness.takes, d) == soundness.takes.end())
      throw Error("the verifier '" + name + "' of /trace/verifiers takes no nodes drawn '" + name_of(d) +
                  "'; leave it out");
}

json complete_run(const json& document, const Registries& registries, const std::string& where) {
  if (!document.is_object()) throw Error(where + ": a run must be a JSON object, not " + shown(document));
  refuse_unknown(document, "", where);
  json run = json::object();
  for (const RunKey& k : run_keys()) {
    const json::json_pointer at(k.pointer);
    if (document.contains(at)) {
      run[at] = document[at];
      // {"length": 4} is a policy of the default name; a drafter says who it is.
      if (k.type == "component" && k.pointer != "/drafter" && run[at].is_object())
        run[at].emplace("name", k.standard["name"]);
      if (!fits(run[at], k)) refuse(k, run[at], where);
    } else if (k.allowed.required) {
      throw Error(where + ": the key '" + k.pointer + "' is missing (" + k.meaning + ")");
    } else {
      run[at] = k.standard;
    }
    if (k.allowed.left_out && run[at].is_null()) run[at.parent_pointer()].erase(at.back());
  }
  try {
    complete_target(run["target"]);
    run["drafter"] = registries.drafters.complete(run["drafter"]);
    run["policy"] = registries.policies.complete(run["policy"]);
    run["verifier"] = registries.verifiers.complete(run["verifier"]);
    if (run.contains("trace"))
      run["trace"] = complete_trace(run["trace"], registries), expect_traceable(run, registries);
  } catch (const Error& e) {
    throw Error(where + ": " + e.what());
  }
  expect_hashes(run["plugins"], registries, where);
  run["plugins"] = plugins_used(run, registries);
  normalize(run);
  complete_parallel(run);
  expect_parallel(run, where);
  expect_consistent(run, where);
  // One run has one name: the default is not written.
  if (run["workload"].value("date", "") == "2024-07-26") run["workload"].erase("date");
  expect_loop(run, where);
  expect_format(run, where);
  expect_start(run, registries, where);
  return run;
}

std::vector<std::string> plugins_of(const json& document) {
  std::vector<std::string> paths;
  const json::json_pointer at(document.is_object() && document.contains("base") ? "/base/plugins" : "/plugins");
  if (!document.contains(at) || !document[at].is_array()) return paths;
  for (const json& p : document[at])
    if (const std::string path = path_of(p); !path.empty()) paths.push_back(path);
  return paths;
}

nlohmann::ordered_json read_document(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  (void)parse_json(text, file.string());  // refuses mistakes in a sentence
  return nlohmann::ordered_json::parse(text);
}

}  // namespace foretoken

#include "experiments/run_document.h"

#include <algorithm>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

const std::vector<RunKey>& run_keys() {
  static const std::vector<RunKey> keys = {
      {"/target/model", "path", nullptr, "Hugging Face directory of the target", true},
      {"/target/dtype", "string", "auto", "type of the weights: auto (as stored), f32, bf16, int8"},
      {"/target/kv_dtype", "string", "auto", "type of keys and values: auto (bf16; f32 on the reference device), f32, bf16"},
      {"/drafter", "chair", json{{"name", "none"}}, "who guesses: `name` and its options"},
      {"/policy", "chair", json{{"name", "fixed"}}, "how much to draft: `name` and its options"},
      {"/verifier", "chair", json{{"name", "speculative_sampling"}}, "who decides what stands: `name` and its options"},
      {"/sampling/temperature", "number", 0, "of the target's law; 0 is greedy", false, false, 0, 100},
      {"/sampling/top_k", "integer", 0, "keep the k most probable tokens; 0: off", false, false, 0, 1e9},
      {"/sampling/top_p", "number", 1, "keep a token while the mass of more probable ones is below this; in (0, 1]", false, false, 1e-9, 1},
      {"/sampling/min_p", "number", 0, "keep tokens with p >= min_p times the greatest; in [0, 1)", false, false, 0, 0.999999},
      {"/sampling/seed", "integer", 1, "of every draw; a request's stream is its prompt and sample number", false, false, 0, 9e15},
      {"/sampling/logprobs", "boolean", false, "also compute log-probabilities of emitted tokens"},
      {"/engine/batch", "integer", 4, "the most sequences running at once", false, false, 1, 4096},
      {"/engine/device", "string", "auto", "auto, cpu, reference (the slow oracle), cuda"},
      {"/engine/threads", "integer", 0, "of the cpu device; 0: all cores", false, false, 0, 1024},
      {"/engine/step_rows", "integer", 512, "the most rows (tokens) of one target forward; at least batch", false, false, 1, 1e6},
      {"/engine/page_rows", "integer", 16, "positions of the target in one page of the KV pool", false, false, 1, 4096},
      {"/engine/memory_mib", "integer", 256, "MiB of the KV pool, shared by the target and all drafters", false, false, 1, 1e7},
      {"/engine/reuse_prefixes", "boolean", true, "serve equal beginnings from cached pages"},
      {"/engine/check", "boolean", false, "check the integrity of every cache after every step (slow)"},
      {"/workload/prompts", "path", nullptr, "JSONL with `prompt` or `turns` (the first is taken), and `category` where there is one", true},
      {"/workload/limit", "integer", 0, "prompts taken, spread evenly over the categories; 0: all", false, false, 0, 1e9},
      {"/workload/categories", "strings", json::array(), "only prompts of these categories; empty: all"},
      {"/workload/max_new_tokens", "integer", 64, "tokens generated per request at most", false, false, 1, 1e7},
      {"/workload/stop", "strings", json::array(), "texts at whose appearance a request ends; they are cut off"},
      {"/workload/ignore_eos", "boolean", false, "go on after an end-of-sequence token, for cost studies"},
      {"/measure/repeats", "integer", 3, "alternations of baseline and speculation", false, false, 1, 1000},
      {"/measure/warmup", "boolean", true, "serve a few requests unmeasured first"},
  };
  return keys;
}

namespace {

bool fits(const json& v, const RunKey& k) {
  if (v.is_null()) return k.optional;
  if (k.type == "integer") return v.is_number_integer() && v.get<double>() >= k.least && v.get<double>() <= k.most;
  if (k.type == "number") return v.is_number() && v.get<double>() >= k.least && v.get<double>() <= k.most;
  if (k.type == "boolean") return v.is_boolean();
  if (k.type == "chair") return v.is_object();
  if (k.type == "strings") return v.is_array() && std::ranges::all_of(v, [](const json& s) { return s.is_string(); });
  return v.is_string() && !v.get<std::string>().empty();
}

bool is_chair(const std::string& pointer) {
  return std::ranges::any_of(run_keys(), [&](const RunKey& k) { return k.type == "chair" && k.pointer == pointer; });
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
      throw Error(where + ": unknown key '" + at + "/" + key + "'" + (near.empty() ? "" : " (did you mean '" + at + "/" + near + "'?)") + "; known there: " + list);
    }
    const std::string below = at + "/" + key;
    if (is_chair(below)) continue;
    const bool group = std::ranges::any_of(run_keys(), [&](const RunKey& k) { return k.pointer.starts_with(below + "/"); });
    if (group && !value.is_object()) throw Error(where + ": '" + below + "' must be an object, not " + shown(value));
    if (group) refuse_unknown(value, below, where);
  }
}

}  // namespace

json complete_run(const json& document, const Registries& registries, const std::string& where) {
  if (!document.is_object()) throw Error(where + ": a run must be a JSON object, not " + shown(document));
  refuse_unknown(document, "", where);
  json run = json::object();
  for (const RunKey& k : run_keys()) {
    const json::json_pointer at(k.pointer);
    if (document.contains(at)) {
      run[at] = document[at];
      if (!fits(run[at], k)) throw Error(where + ": '" + k.pointer + "' must be " + k.type + " (" + k.meaning + "), not " + shown(run[at]));
    } else if (k.required) {
      throw Error(where + ": the key '" + k.pointer + "' is missing (" + k.meaning + ")");
    } else {
      run[at] = k.standard;
    }
  }
  try {
    run["drafter"] = registries.drafters.complete(run["drafter"]);
    run["policy"] = registries.policies.complete(run["policy"]);
    run["verifier"] = registries.verifiers.complete(run["verifier"]);
  } catch (const Error& e) {
    throw Error(where + ": " + e.what());
  }
  if (run["engine"]["step_rows"] < run["engine"]["batch"]) throw Error(where + ": '/engine/step_rows' must be at least '/engine/batch'");
  return run;
}

namespace {

template <class T> void chair_options(std::string& out, const Registry<T>& registry) {
  for (const auto& [name, entry] : registry.entries()) {
    out += "\n**" + registry.what() + " `" + name + "`**: " + entry.summary + (entry.source.empty() ? "" : " (" + entry.source + ")") + ".\n";
    if (entry.options.empty()) continue;
    out += "\n| option | type | default | meaning |\n|---|---|---|---|\n";
    for (const Option& o : entry.options) {
      const std::string standard = !o.standard.is_null() ? "`" + o.standard.dump() + "`" : o.optional ? "`null`" : "required";
      out += "| `" + o.name + "` | " + o.type + " | " + standard + " | " + o.meaning + " |\n";
    }
  }
}

}  // namespace

std::string keys_markdown(const Registries& registries) {
  std::string out = "| key | type | default | meaning |\n|---|---|---|---|\n";
  for (const RunKey& k : run_keys())
    out += "| `" + k.pointer + "` | " + k.type + " | " + (k.required ? "required" : "`" + k.standard.dump() + "`") + " | " + k.meaning + " |\n";
  chair_options(out, registries.drafters);
  chair_options(out, registries.policies);
  chair_options(out, registries.verifiers);
  return out;
}

}  // namespace foretoken

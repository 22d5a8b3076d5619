// The list of keys, and its two formats.
#include <algorithm>
#include <iterator>

#include "experiments/session/run_document.h"
#include "framework/model/transformer.h"
#include "framework/text/chat_template.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr double kMany = 1e9;

// What a value may be.
AllowedValues any() { return {}; }
AllowedValues required() { return {.required = true}; }
AllowedValues or_null() { return {.optional = true}; }
AllowedValues or_absent() { return {.optional = true, .left_out = true}; }
AllowedValues from(double least, double most, AllowedValues others = {}) {
  others.least = least;
  others.most = most;
  return others;
}
AllowedValues above(double least, double most, AllowedValues others = {}) {
  others.above = true;
  return from(least, most, std::move(others));
}
AllowedValues one_of(std::vector<std::string> choices, AllowedValues others = {}) {
  others.choices = std::move(choices);
  return others;
}
std::vector<std::string> chat_forms() {
  std::vector<std::string> forms{"none", "auto"};
  forms.insert(forms.end(), ChatTemplate::names().begin(), ChatTemplate::names().end());
  return forms;
}

// What runs, and how tokens are drawn.
std::vector<RunKey> keys_of_models_and_sampling() {
  return {
      {"/target/model", "model", nullptr, required(),
       "Hugging Face directory or GGUF file of the target, or random weights: "
       "{\"random\": SHAPE, \"seed\": 1, \"tokenizer\": DIRECTORY}"},
      {"/target/inflate", "shape", nullptr, or_null(),
       "shape that it is embedded in, computing the same at its cost; null: as it is"},
      {"/target/dtype", "string", "auto", one_of(weight_types()),
       "type of its weights; auto: as stored; a format keeps the head as stored unless the model has a `head_dtype`"},
      {"/target/kv_dtype", "string", "auto", one_of(cache_types()),
       "type of cached keys and values, of drafters' models too unless they have a `kv_dtype`; auto: f32 on the "
       "reference device, else bf16; int8 and fp8 (e4m3) have a scale for each token and head"},
      {"/drafter", "component", {{"name", "none"}}, any(), "what proposes tokens: `name` and its options"},
      {"/policy", "component", {{"name", "fixed"}}, any(), "how much to draft: `name` and its options"},
      {"/verifier",
       "component",
       {{"name", "speculative_sampling"}},
       any(),
       "what accepts or rejects drafts: `name` and its options"},
      {"/plugins", "plugins", json::array(), any(),
       "shared libraries that are loaded first, by path; of a complete run: those it uses, `path` and `hash` of "
       "each"},
      {"/sampling/temperature", "number", 0, from(0, 100), "divides the logits; 0 is greedy"},
      {"/sampling/top_k", "integer", 0, from(0, kMany), "keep the k most probable tokens; 0: all"},
      {"/sampling/top_p", "number", 1, above(0, 1), "keep a token while the mass of more probable ones is below this"},
      {"/sampling/min_p", "number", 0, from(0, 1, {.below = true}), "keep tokens with p >= min_p times the greatest"},
      {"/sampling/repetition_penalty", "number", 1, from(0.01, 100),
       "divides positive logits of tokens of the prompt or the output, multiplies others; 1: off"},
      {"/sampling/frequency_penalty", "number", 0, from(-100, 100),
       "taken off a logit for each time that the output has the token"},
      {"/sampling/presence_penalty", "number", 0, from(-100, 100),
       "taken off a logit once, if the output has the token"},
      {"/sampling/logit_bias", "biases", json::object(), from(-100, 100),
       "added to the logits of tokens: {\"TOKEN\": BIAS}, by id; -100 forbids a token at every temperature"},
      {"/sampling/response_format", "object", nullptr, or_absent(),
       "form of outputs: {\"type\": \"json_object\"}, or \"json_schema\" or \"regex\" with its own key; null: any"},
      {"/sampling/samples", "integer", 1, from(1, 1024),
       "outputs of each prompt, each with its own draws; the prompt's cache pages are shared"},
      {"/sampling/seed", "integer", 1, from(0, 9e15),
       "of every draw; a request's stream is its prompt and sample number"},
      {"/sampling/logprobs", "boolean", false, any(),
       "also compute log-probabilities of emitted tokens, by the model's own distribution: before penalties, "
       "biases and warp"},
      {"/sampling/warped_logprobs", "boolean", false, any(), "log-probabilities are those of the sampled distribution"},
  };
}

// Where it runs.
std::vector<RunKey> keys_of_engine() {
  return {
      {"/engine/batch", "integer", 4, from(1, 4096),
       "the most sequences running at once; a run serves at least six times as many requests"},
      {"/engine/device", "string", "auto", one_of({"auto", "cpu", "reference", "cuda"}),
       "where it runs; auto: cuda where this build and machine have it, else cpu; reference: slow, for comparisons"},
      {"/engine/threads", "integer", 0, from(0, 1024),
       "of the cpu device, of each where there are several; 0: all cores"},
      {"/engine/numerics", "string", "fast", one_of({"fast", "invariant"}),
       "of the cuda device; invariant: a row's result has the same bits whatever else is in the batch, as on the "
       "other devices; fast: results may differ by rounding"},
      {"/engine/step_rows", "integer", 0, from(0, 1e6),
       "the most rows (tokens) of one target forward, at least batch; 0: batch times the policy's nodes, and for "
       "prompts 32 times batch, but 512 to 8192"},
      {"/engine/page_rows", "integer", 16, from(1, 4096),
       "positions of the target in one page of the KV pool; from 16 on rounded down to a multiple of 8"},
      {"/engine/memory_mib", "integer", 256, from(1, 1e7),
       "MiB of the KV pool, shared by the target and all drafters; a step's logits may take as much again"},
      {"/engine/memory_fraction", "number", nullptr, above(0, 1, {.below = true, .optional = true}),
       "the pool as a share of the device's memory that is free once the models are loaded, of whose rest a step's "
       "logits may take half; null: memory_mib"},
      {"/engine/reuse_prefixes", "boolean", true, any(), "serve equal beginnings from cached pages"},
      {"/engine/check", "boolean", false, any(), "check the integrity of every cache after every step (slow)"},
  };
}

// Among how many devices the target is divided.
std::vector<RunKey> keys_of_parallel() {
  return {
      {"/parallel/tensor", "integer", nullptr, from(1, 64, or_absent()),
       "devices of this machine (of cpu and reference: threads) among which the target is divided, by heads and hidden "
       "units; drafters' models are whole on each; null: 1"},
      {"/parallel/expert", "integer", nullptr, from(1, 64, or_absent()),
       "groups of these devices that have different experts of a mixture; divides tensor; null: 1, each has a part of "
       "every expert"},
  };
}

// On what.
std::vector<RunKey> keys_of_workload() {
  return {
      {"/workload/prompts", "path", nullptr, required(),
       "JSON lines or a JSON list, plain, .gz or .xz, with `prompt` or `turns` (a conversation), and `category` "
       "where there is one; or, as they are published: Spec-Bench, MT-bench, SPEED-Bench, Arena-Hard, HumanEval, "
       "GSM8K, MBPP"},
      {"/workload/prompt_tokens", "integer", nullptr, from(1, 1e7, or_absent()),
       "tokens of every prompt, its chat form included: longer ones are cut, to shorter ones further "
       "prompts of the workload are joined; null: as they are"},
      {"/workload/chat", "string", "none", one_of(chat_forms()),
       "form in which a prompt is put to a chat model; auto: the template of the target's directory or GGUF "
       "file; none: as it is"},
      {"/workload/system", "string", nullptr, or_null(),
       "system prompt of the chat form; null: the form's own, if any; \"\": none"},
      {"/workload/date", "string", nullptr, or_absent(),
       "day that a chat template takes for today, YYYY-MM-DD; null: 2024-07-26, so that a prompt is the same "
       "tomorrow"},
      {"/workload/turns", "integer", 1, from(0, 1000),
       "turns of a conversation that are served, as far as the target's context has room; 0: all of "
       "them"},
      {"/workload/limit", "integer", 0, from(0, kMany),
       "prompts taken, spread evenly over the categories, but at least as many as six requests for each slot "
       "of the batch need; 0: all"},
      {"/workload/skip", "integer", 0, from(0, kMany),
       "prompts left out before the first that is taken, so that what is chosen by one run is measured by "
       "another on other prompts: at least as many as that one served"},
      {"/workload/repeats", "integer", 1, from(1, 1000),
       "how often each prompt is served, every time with other draws; a drafter that learns from requests meets "
       "the answers again"},
      {"/workload/start", "string", nullptr, one_of({"cold", "warm", "others"}, or_absent()),
       "what a drafter or policy that learns has seen when a measurement begins; cold: what its files hold; "
       "warm: it has also served the same requests once, with other draws; others: it has also served the prompts "
       "that /workload/skip leaves out, and no prompt is served twice; null: cold and warm, as two runs, where one "
       "learns"},
      {"/workload/lengths", "string", "drawn", one_of({"drawn", "equal"}),
       "drawn: every request generates between half of max_new_tokens and all of them, as its prompt and repeat "
       "have it, so that requests do not end all at once; equal: all of them"},
      {"/workload/categories", "strings", json::array(), any(), "only prompts of these categories; empty: all"},
      {"/workload/max_new_tokens", "integer", 64, from(1, 1e7),
       "tokens generated per request at most; cut to the target's context"},
      {"/workload/stop", "strings", json::array(), any(),
       "strings that end a request; the token that completes one is the last"},
      {"/workload/ignore_eos", "boolean", false, any(), "continue after an end-of-sequence token, for cost studies"},
  };
}

// When requests arrive.
std::vector<RunKey> keys_of_arrivals() {
  return {
      {"/workload/rate", "number", nullptr, from(0.001, 1e6, or_absent()),
       "requests that arrive per second, an open loop: a Poisson process, of the same arrivals for both sides; "
       "null: a request arrives when another ends, a closed loop"},
      {"/workload/rates", "list", nullptr, or_absent(),
       "instead of one rate, for a load that rises and falls: pieces of [seconds, requests per second], one after the "
       "other and again from the first, as [[30, 2], [30, 20]]; 0 is a pause; null: one rate, or a closed loop"},
      {"/workload/ttft_limit", "number", nullptr, above(0, kMany, or_absent()),
       "seconds from a request's arrival to its first token that count for goodput, with a rate; null: no limit"},
      {"/workload/tpot_limit", "number", nullptr, above(0, kMany, or_absent()),
       "seconds per token after a request's first round that count for goodput, with a rate; null: no limit"},
  };
}

// How it is measured.
std::vector<RunKey> keys_of_measure() {
  return {
      {"/measure/repeats", "integer", 3, from(1, 1000), "alternations of baseline and speculation, at least"},
      {"/measure/seconds", "number", 0, from(0, 1e6),
       "more alternations follow until this much time has been measured"},
      {"/measure/warmup", "boolean", true, any(),
       "serve a few short requests unmeasured first; on a GPU all requests once, and record no forward after them"},
      {"/measure/keep_outputs", "boolean", false, any(),
       "keep the generated texts of both sides with the first alternation's requests, so that they can be scored"},
      {"/measure/busy", "string", "refuse", one_of({"refuse", "accept"}),
       "a machine on which the process gets no processor for a while; refuse: measure again, and fail the third "
       "time; accept: for acceptance or a trace alone, every measurement counts and no speed is shown"},
      {"/trace", "trace", nullptr, or_absent(),
       "file of an acceptance trace, which is recorded beside the measurement; or {\"file\": FILE, \"dense\": true, "
       "\"verifiers\": [NAME, ...]}; null: none"},
  };
}

// One line of a table.
struct Line {
  std::string key, type, range, standard, meaning;
};

Line line_of(const RunKey& k) {
  return {k.pointer, k.type, range_of(k), k.allowed.required ? "required" : k.standard.dump(), k.meaning};
}

Line line_of(const std::string& component, const Option& o) {
  const bool must = o.standard.is_null() && !o.optional;
  return line_of({"/" + component + "/" + o.name,
                  o.type,
                  o.standard,
                  {.least = o.least, .most = o.most, .required = must, .optional = o.optional},
                  o.meaning});
}

std::string render(const std::vector<Line>& lines, bool markdown) {
  std::string out = markdown ? "| key | type | range | default | meaning |\n|---|---|---|---|---|\n" : "";
  for (const Line& l : lines) {
    const std::string standard = l.standard == "required" || !markdown ? l.standard : "`" + l.standard + "`";
    out += markdown ? "| `" + l.key + "` | " + l.type + " | " + l.range + " | " + standard + " | " + l.meaning + " |\n"
                    : l.key + "  (" + l.type + (l.range.empty() ? "" : ", " + l.range) + "; " +
                          (l.standard == "required" ? "" : "default ") + standard + ")\n    " + l.meaning + "\n";
  }
  return out;
}

template <class T> std::string component_options(const Registry<T>& registry, bool markdown) {
  std::string out;
  for (const auto& [name, entry] : registry.entries()) {
    std::vector<Line> lines;
    for (const Option& o : entry.options) lines.push_back(line_of(registry.what(), o));
    const std::string quote = markdown ? "`" : "";
    out += "\n" + registry.what() + " " + quote + name + quote + ": " + entry.summary + "\n" +
           (lines.empty() ? "" : "\n" + render(lines, markdown));
  }
  return out;
}

}  // namespace

std::string range_of(const RunKey& k) {
  std::string s;
  for (const auto& c : k.allowed.choices) s += (s.empty() ? "" : ", ") + c;
  const auto number = [](double x) {
    return x == double(std::int64_t(x)) ? std::to_string(std::int64_t(x)) : json(x).dump();
  };
  if (k.allowed.least > -1e300) s += (k.allowed.above ? "> " : ">= ") + number(k.allowed.least);
  if (k.allowed.most < 1e300)
    s += (s.empty() ? "" : ", ") + std::string(k.allowed.below ? "< " : "<= ") + number(k.allowed.most);
  return s;
}

const std::vector<RunKey>& run_keys() {
  static const std::vector<RunKey> keys = [] {
    std::vector<RunKey> all = keys_of_models_and_sampling();
    for (const auto& more :
         {keys_of_engine(), keys_of_parallel(), keys_of_workload(), keys_of_arrivals(), keys_of_measure()})
      std::ranges::copy(more, std::back_inserter(all));
    return all;
  }();
  return keys;
}

std::string describe_keys(const Registries& registries, bool markdown) {
  std::vector<Line> lines;
  for (const RunKey& k : run_keys()) lines.push_back(line_of(k));
  return render(lines, markdown) + component_options(registries.drafters, markdown) +
         component_options(registries.policies, markdown) + component_options(registries.verifiers, markdown);
}

}  // namespace foretoken

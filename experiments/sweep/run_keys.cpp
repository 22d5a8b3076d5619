// The list of keys, and its two formats.
#include <algorithm>
#include <iterator>

#include "experiments/sweep/run_document.h"
#include "framework/model/transformer.h"
#include "framework/text/chat_template.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr double kMany = 1e9;

RunKey path(const char* pointer, const char* meaning) {
  return {pointer, "path", nullptr, meaning, true, false, -1e300, 1e300, {}, false, false};
}
RunKey component(const char* pointer, const char* standard, const char* meaning) {
  return {pointer, "component", {{"name", standard}}, meaning, false, false, -1e300, 1e300, {}, false, false};
}
RunKey model(const char* pointer, const char* meaning) {
  return {pointer, "model", nullptr, meaning, true, false, -1e300, 1e300, {}, false, false};
}
RunKey shape(const char* pointer, const char* meaning) {
  return {pointer, "shape", nullptr, meaning, false, true, -1e300, 1e300, {}, false, false};
}
RunKey choice(const char* pointer, const char* meaning, std::vector<std::string> choices) {
  return {pointer, "string", choices.front(), meaning, false, false, -1e300, 1e300, choices, false, false};
}
RunKey chat(const char* pointer, const char* meaning) {
  std::vector<std::string> choices{"none", "auto"};
  choices.insert(choices.end(), ChatTemplate::names().begin(), ChatTemplate::names().end());
  return choice(pointer, meaning, std::move(choices));
}
RunKey text(const char* pointer, const char* meaning) {
  return {pointer, "string", nullptr, meaning, false, true, -1e300, 1e300, {}, false, false};
}
RunKey day(const char* pointer, const char* meaning) {
  return {pointer, "string", nullptr, meaning, false, true, -1e300, 1e300, {}, false, false, true};
}
RunKey integer(const char* pointer, json standard, double least, double most, const char* meaning) {
  return {pointer, "integer", standard, meaning, false, false, least, most, {}, false, false};
}
RunKey number(const char* pointer, json standard, double least, double most, const char* meaning, bool above = false,
              bool below = false) {
  return {pointer, "number", standard, meaning, false, false, least, most, {}, above, below};
}
// Absent in complete runs that do not give it.
RunKey number_or_none(const char* pointer, double least, double most, const char* meaning, bool above = false) {
  return {pointer, "number", nullptr, meaning, false, true, least, most, {}, above, false, true};
}
RunKey integer_or_none(const char* pointer, double least, double most, const char* meaning) {
  return {pointer, "integer", nullptr, meaning, false, true, least, most, {}, false, false, true};
}
RunKey choice_or_none(const char* pointer, const char* meaning, std::vector<std::string> choices) {
  return {pointer, "string", nullptr, meaning, false, true, -1e300, 1e300, std::move(choices), false, false, true};
}
RunKey share(const char* pointer, const char* meaning) {
  return {pointer, "number", nullptr, meaning, false, true, 0, 1, {}, true, true};
}
RunKey boolean(const char* pointer, bool standard, const char* meaning) {
  return {pointer, "boolean", standard, meaning, false, false, -1e300, 1e300, {}, false, false};
}
RunKey strings(const char* pointer, const char* meaning) {
  return {pointer, "strings", json::array(), meaning, false, false, -1e300, 1e300, {}, false, false};
}

RunKey biases(const char* pointer, double most, const char* meaning) {
  return {pointer, "biases", json::object(), meaning, false, false, -most, most, {}, false, false};
}
RunKey trace(const char* pointer, const char* meaning) {
  return {pointer, "trace", nullptr, meaning, false, true, -1e300, 1e300, {}, false, false, true};
}
RunKey plugins(const char* pointer, const char* meaning) {
  return {pointer, "plugins", json::array(), meaning, false, false, -1e300, 1e300, {}, false, false};
}

// What runs, and how tokens are drawn.
std::vector<RunKey> keys_of_models_and_sampling() {
  return {
      model("/target/model",
            "Hugging Face directory or GGUF file of the target, or random weights: "
            "{\"random\": SHAPE, \"seed\": 1, \"tokenizer\": DIRECTORY}"),
      shape("/target/inflate", "shape that it is embedded in, computing the same at its cost; null: as it is"),
      choice(
          "/target/dtype",
          "type of its weights; auto: as stored; a format keeps the head as stored unless the model has a `head_dtype`",
          weight_types()),
      choice("/target/kv_dtype",
             "type of cached keys and values, of drafters' models too unless they have a `kv_dtype`; auto: f32 on the "
             "reference device, else bf16; int8 and fp8 (e4m3) have a scale for each token and head",
             cache_types()),
      component("/drafter", "none", "what proposes tokens: `name` and its options"),
      component("/policy", "fixed", "how much to draft: `name` and its options"),
      component("/verifier", "speculative_sampling", "what accepts or rejects drafts: `name` and its options"),
      plugins("/plugins",
              "shared libraries that are loaded first, by path; of a complete run: those it uses, `path` and `hash` of "
              "each"),
      number("/sampling/temperature", 0, 0, 100, "divides the logits; 0 is greedy"),
      integer("/sampling/top_k", 0, 0, kMany, "keep the k most probable tokens; 0: all"),
      number("/sampling/top_p", 1, 0, 1, "keep a token while the mass of more probable ones is below this", true),
      number("/sampling/min_p", 0, 0, 1, "keep tokens with p >= min_p times the greatest", false, true),
      number("/sampling/repetition_penalty", 1, 0.01, 100,
             "divides positive logits of tokens of the prompt or the output, multiplies others; 1: off"),
      number("/sampling/frequency_penalty", 0, -100, 100,
             "taken off a logit for each time that the output has the token"),
      number("/sampling/presence_penalty", 0, -100, 100, "taken off a logit once, if the output has the token"),
      biases("/sampling/logit_bias", 100,
             "added to the logits of tokens: {\"TOKEN\": BIAS}, by id; -100 forbids a token at every temperature"),
      integer("/sampling/samples", 1, 1, 1024,
              "outputs of each prompt, each with its own draws; the prompt's cache pages are shared"),
      integer("/sampling/seed", 1, 0, 9e15, "of every draw; a request's stream is its prompt and sample number"),
      boolean("/sampling/logprobs", false,
              "also compute log-probabilities of emitted tokens, by the model's own distribution: before penalties, "
              "biases and warp"),
      boolean("/sampling/warped_logprobs", false, "log-probabilities are those of the sampled distribution"),
  };
}

// Where it runs.
std::vector<RunKey> keys_of_engine() {
  return {
      integer("/engine/batch", 4, 1, 4096,
              "the most sequences running at once; a run serves at least six times as many requests"),
      choice(
          "/engine/device",
          "where it runs; auto: cuda where this build and machine have it, else cpu; reference: slow, for comparisons",
          {"auto", "cpu", "reference", "cuda"}),
      integer("/engine/threads", 0, 0, 1024, "of the cpu device; 0: all cores"),
      choice("/engine/numerics",
             "of the cuda device; invariant: a row's result has the same bits whatever else is in the batch, as on the "
             "other devices; fast: results may differ by rounding",
             {"fast", "invariant"}),
      integer(
          "/engine/step_rows", 0, 0, 1e6,
          "the most rows (tokens) of one target forward, at least batch; 0: batch times the policy's nodes, and for "
          "prompts 32 times batch, but 512 to 8192"),
      integer("/engine/page_rows", 16, 1, 4096,
              "positions of the target in one page of the KV pool; from 16 on rounded down to a multiple of 8"),
      integer("/engine/memory_mib", 256, 1, 1e7,
              "MiB of the KV pool, shared by the target and all drafters; a step's logits may take as much again"),
      share(
          "/engine/memory_fraction",
          "the pool as a share of the device's memory that is free once the models are loaded, of whose rest a step's "
          "logits may take half; null: memory_mib"),
      boolean("/engine/reuse_prefixes", true, "serve equal beginnings from cached pages"),
      boolean("/engine/check", false, "check the integrity of every cache after every step (slow)"),
  };
}

// On what.
std::vector<RunKey> keys_of_workload() {
  return {
      path("/workload/prompts",
           "JSON lines or a JSON list, plain, .gz or .xz, with `prompt` or `turns` (a conversation), and `category` "
           "where there is one; or, as they are published: Spec-Bench, MT-bench, SPEED-Bench, Arena-Hard, HumanEval, "
           "GSM8K, MBPP"),
      integer_or_none("/workload/prompt_tokens", 1, 1e7,
                      "tokens of every prompt, its chat form included: longer ones are cut, to shorter ones further "
                      "prompts of the workload are joined; null: as they are"),
      chat("/workload/chat",
           "form in which a prompt is put to a chat model; auto: the template of the target's directory or GGUF "
           "file; none: as it is"),
      text("/workload/system", "system prompt of the chat form; null: the form's own, if any; \"\": none"),
      day("/workload/date",
          "day that a chat template takes for today, YYYY-MM-DD; null: 2024-07-26, so that a prompt is the same "
          "tomorrow"),
      integer("/workload/turns", 1, 0, 1000,
              "turns of a conversation that are served, as far as the target's context has room; 0: all of "
              "them"),
      integer("/workload/limit", 0, 0, kMany,
              "prompts taken, spread evenly over the categories, but at least as many as six requests for each place "
              "of the batch need; 0: all"),
      integer("/workload/skip", 0, 0, kMany,
              "prompts left out before the first that is taken, so that what is chosen by one run is measured by "
              "another on other prompts: at least as many as that one served"),
      integer("/workload/repeats", 1, 1, 1000,
              "how often each prompt is served, every time with other draws; a drafter that learns from requests meets "
              "the answers again"),
      choice_or_none(
          "/workload/start",
          "what a drafter or policy that learns has seen when a measurement begins; cold: what its files hold; "
          "warm: it has also served the same requests once, with other draws; others: it has also served the prompts "
          "that /workload/skip leaves out, and no prompt is served twice; null: cold and warm, as two runs, where one "
          "learns",
          {"cold", "warm", "others"}),
      choice("/workload/lengths",
             "drawn: every request generates between half of max_new_tokens and all of them, as its prompt and repeat "
             "have it, so that requests do not end all at once; equal: all of them",
             {"drawn", "equal"}),
      strings("/workload/categories", "only prompts of these categories; empty: all"),
      integer("/workload/max_new_tokens", 64, 1, 1e7,
              "tokens generated per request at most; cut to the target's context"),
      strings("/workload/stop", "strings that end a request; the token that completes one is the last"),
      boolean("/workload/ignore_eos", false, "continue after an end-of-sequence token, for cost studies"),
  };
}

// When requests arrive.
std::vector<RunKey> keys_of_arrivals() {
  return {
      number_or_none(
          "/workload/rate", 0.001, 1e6,
          "requests that arrive per second, an open loop: a Poisson process, of the same arrivals for both sides; "
          "null: a request arrives when another ends, a closed loop"),
      number_or_none(
          "/workload/ttft_limit", 0, kMany,
          "seconds from a request's arrival to its first token that count for goodput, with a rate; null: no limit",
          true),
      number_or_none(
          "/workload/tpot_limit", 0, kMany,
          "seconds per token after a request's first round that count for goodput, with a rate; null: no limit", true),
  };
}

// How it is measured.
std::vector<RunKey> keys_of_measure() {
  return {
      integer("/measure/repeats", 3, 1, 1000, "alternations of baseline and speculation, at least"),
      number("/measure/seconds", 0, 0, 1e6, "more alternations follow until this much time has been measured"),
      boolean(
          "/measure/warmup", true,
          "serve a few short requests unmeasured first; on a GPU all requests once, and record no forward after them"),
      boolean(
          "/measure/keep_outputs", false,
          "keep the generated texts of both sides with the first alternation's requests, so that they can be scored"),
      choice("/measure/busy",
             "a machine on which the process gets no processor for a while; refuse: measure again, and fail the third "
             "time; accept: for acceptance or a trace alone, every measurement counts and no speed is shown",
             {"refuse", "accept"}),
      trace(
          "/trace",
          "file of an acceptance trace, which is recorded beside the measurement; or {\"file\": FILE, \"dense\": true, "
          "\"verifiers\": [NAME, ...]}; null: none"),
  };
}

// One line of a table.
struct Line {
  std::string key, type, range, standard, meaning;
};

Line line_of(const RunKey& k) {
  return {k.pointer, k.type, range_of(k), k.required ? "required" : k.standard.dump(), k.meaning};
}

Line line_of(const std::string& component, const Option& o) {
  const RunKey key{"/" + component + "/" + o.name,
                   o.type,
                   o.standard,
                   o.meaning,
                   o.standard.is_null() && !o.optional,
                   o.optional,
                   o.least,
                   o.most,
                   {},
                   false,
                   false};
  return line_of(key);
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
  for (const auto& c : k.choices) s += (s.empty() ? "" : ", ") + c;
  const auto number = [](double x) {
    return x == double(std::int64_t(x)) ? std::to_string(std::int64_t(x)) : json(x).dump();
  };
  if (k.least > -1e300) s += (k.above ? "> " : ">= ") + number(k.least);
  if (k.most < 1e300) s += (s.empty() ? "" : ", ") + std::string(k.below ? "< " : "<= ") + number(k.most);
  return s;
}

const std::vector<RunKey>& run_keys() {
  static const std::vector<RunKey> keys = [] {
    std::vector<RunKey> all = keys_of_models_and_sampling();
    for (const auto& more : {keys_of_engine(), keys_of_workload(), keys_of_arrivals(), keys_of_measure()})
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

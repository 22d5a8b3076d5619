// Hand-made result lines for tests of their readers. This module must know the schema only, not the
// code under test.
#pragma once
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken::test {

using nlohmann::json;

// The figures of one request; `share` are its seconds of the wall time.
struct MadeRequest {
  int prompt = 0;
  json category;
  int tokens = 0, rounds = 0, drafted = 0, tested = 0, accepted = 0;
  double share = 0, ttft = 0.01, decode = 1;
};

inline json request(const MadeRequest& s) {
  return {{"prompt", s.prompt},
          {"category", s.category},
          {"prompt_tokens", 10},
          {"tokens", s.tokens},
          {"seconds", s.decode + s.ttft},
          {"share_seconds", s.share},
          {"decode_seconds", s.decode},
          {"ttft", s.ttft},
          {"rounds", s.rounds},
          {"drafted", s.drafted},
          {"tested", s.tested},
          {"accepted", s.accepted},
          {"finish", "length"}};
}

// A measure whose totals are the sums of its requests; the caller gives the arrays by position.
inline json measure(const std::vector<MadeRequest>& requests, const json& drafted_at, const json& tested_at,
                    const json& accepted_at, const json& histogram, double draft_forward, double target_forward) {
  json found = {{"requests", json::array()},
                {"drafted_at", drafted_at},
                {"tested_at", tested_at},
                {"accepted_at", accepted_at},
                {"histogram", histogram},
                {"prompt_tokens", 10 * requests.size()},
                {"preempted", 0},
                {"prefix_rows", 0}};
  MadeRequest sum;
  for (const MadeRequest& s : requests) {
    found["requests"].push_back(request(s));
    sum.tokens += s.tokens, sum.rounds += s.rounds, sum.drafted += s.drafted, sum.tested += s.tested;
    sum.accepted += s.accepted, sum.share += s.share;
  }
  found.update({{"seconds", sum.share},
                {"tokens", sum.tokens},
                {"rounds", sum.rounds},
                {"steps", sum.rounds},
                {"rows", sum.tokens},
                {"drafted", sum.drafted},
                {"tested", sum.tested},
                {"accepted", sum.accepted}});
  const double total = (draft_forward + target_forward) * 1.1;
  found["phases"] = {{"schedule", 0.01 * total},
                     {"draft_forward", draft_forward},
                     {"draft_other", 0.02 * total},
                     {"target_forward", target_forward},
                     {"verify", 0.03 * total},
                     {"deliver", 0.01 * total},
                     {"total", total}};
  return found;
}

inline json run(const std::string& drafter, int length, double temperature = 0, int batch = 1) {
  return {{"target", {{"model", "experiments/models/target"}}},
          {"drafter", {{"name", drafter}}},
          {"policy", {{"name", "fixed"}, {"length", length}}},
          {"verifier", {{"name", "speculative_sampling"}}},
          {"sampling", {{"temperature", temperature}, {"seed", 1}}},
          {"engine", {{"batch", batch}, {"device", "cpu"}}},
          {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", 24}}},
          {"measure", {{"repeats", 2}}}};
}

inline json line(const std::string& key, const json& run, const json& axes, const json& repeats) {
  return {{"schema", 2},
          {"key", key},
          {"run", run},
          {"axes", axes},
          {"commit", "abc"},
          {"compiler", "GNU 12"},
          {"machine", {{"cpu", "a CPU"}, {"cores", 2}}},
          {"date", "2026-11-21"},
          {"seconds", 3.0},
          {"promise", "exact"},
          {"repeats", repeats},
          {"agreement", {{"compared", true}, {"compared_texts", 2}, {"differing_texts", 0}}}};
}

// Two prompts, two equal repeats, draft length 2. By hand: alpha 10/15, accept rate 10/20, tau 20/10, 10 tokens/s
// against 6.25, so a speedup of 1.6; c = (.4/20) / (1/10) = .2.
inline json worked_line() {
  const json fast =
      measure({{0, "story", 12, 5, 10, 8, 7, 1.0, 0.010, 0.9}, {1, "math", 8, 5, 10, 7, 3, 1.0, 0.030, 0.9}}, {10, 10},
              {10, 5}, {7, 3}, {3, 4, 3}, 0.4, 1.0);
  const json plain =
      measure({{0, "story", 12, 12, 0, 0, 0, 2.0, 0.010, 1.8}, {1, "math", 8, 8, 0, 0, 0, 1.2, 0.020, 1.8}},
              json::array(), json::array(), json::array(), {20}, 0, 3.0);
  const json repeat = {{"speculative", fast}, {"baseline", plain}};
  return line("00000000000000aa", run("draft_model", 2), {{"/policy/length", 2}}, {repeat, repeat});
}

// The worked line with a third prompt, whose request failed on one side after some tokens.
inline json line_with_a_failure() {
  json line = worked_line();
  for (json& repeat : line["repeats"])
    for (const char* side : {"speculative", "baseline"}) {
      json& all = repeat[side];
      all["requests"].push_back(request({2, "story", 7, 3, 6, 6, 4, 0.5, 0.5, 0.5}));
      for (const char* key : {"tokens", "rounds", "drafted", "tested", "accepted", "prompt_tokens"})
        all[key] = all[key].get<int>() + all["requests"][2][key].get<int>();
      all["seconds"] = all["seconds"].get<double>() + 0.5;
    }
  line["repeats"][0]["baseline"]["requests"][2]["finish"] = "failed";
  line["failures"] = {{{"request", 2}, {"prompt", 2}, {"side", "baseline"}, {"repeat", 0}, {"failure", "a NaN"}}};
  return line;
}

// A line of a sweep, over six prompts in two categories and two repeats that differ a little. `gain`: speedup, about.
inline json swept_line(const std::string& drafter, int length, double temperature, int batch, double gain) {
  json repeats = json::array();
  for (int r = 0; r < 2; ++r) {
    std::vector<MadeRequest> fast, plain;
    for (int p = 0; p < 6; ++p) {
      const json category = p % 2 ? "math" : "story";
      const double seconds = (0.4 + 0.01 * p + 0.002 * r) / gain;
      fast.push_back({p, category, 40, 20, 20 * length, 15 * length, 10 * length, seconds, 0.01, 0.9 * seconds});
      plain.push_back({p, category, 40, 40, 0, 0, 0, 0.4 + 0.01 * p, 0.01, 0.36});
    }
    json drafted = json::array(), tested = json::array(), accepted = json::array();
    for (int i = 0; i < length; ++i) drafted.push_back(120), tested.push_back(90), accepted.push_back(60);
    repeats.push_back({{"speculative", measure(fast, drafted, tested, accepted, {60, 60}, 0.2 * length, 1.0)},
                       {"baseline", measure(plain, json::array(), json::array(), json::array(), {240}, 0, 2.2)}});
    const int waves = (6 + batch - 1) / batch;  // requests share steps
    repeats.back()["speculative"]["steps"] = 20 * waves, repeats.back()["baseline"]["steps"] = 40 * waves;
  }
  const std::string key =
      drafter + std::to_string(length) + "-" + std::to_string(int(temperature)) + "-" + std::to_string(batch);
  const json axes = {{"/drafter", {{"name", drafter}}},
                     {"/policy/length", length},
                     {"/sampling/temperature", temperature},
                     {"/engine/batch", batch}};
  return line(key, run(drafter, length, temperature, batch), axes, repeats);
}

// Two drafters, two lengths, two temperatures, two batches: draft_model gains except at batch 4, ngram loses at length
// 8.
inline std::vector<json> swept_lines() {
  std::vector<json> lines;
  for (const std::string drafter : {"draft_model", "ngram"})
    for (const double temperature : {0.0, 1.0})
      for (const int batch : {1, 4})
        for (const int length : {2, 8}) {
          double gain = batch == 1 ? 1.6 : 1.0;
          if (drafter == "ngram") gain *= length == 8 ? 0.5 : 0.9;
          lines.push_back(swept_line(drafter, length, temperature, batch, gain + 0.01 * length));
        }
  return lines;
}

// Numbers that are whole as such, without what is null.
inline void tidy(json& value) {
  if (value.is_object())
    for (auto it = value.begin(); it != value.end();) it = it->is_null() ? value.erase(it) : std::next(it);
  if (value.is_structured())
    for (json& inner : value) tidy(inner);
  else if (value.is_number_float() && value == std::floor(value.get<double>()) && std::abs(value.get<double>()) < 1e15)
    value = value.get<long>();
}

// With what every line has, where it does not say it.
inline json whole(json line) {
  const auto add = [](json& object, const json& defaults) {
    if (object.is_object()) object.insert(defaults.begin(), defaults.end());
  };
  const json none = json::array(), empty = json::object(), run = line.value("run", empty),
             axes = line.value("axes", empty);
  tidy(line);
  line["run"] = run, line["axes"] = axes;
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, json>>{{"date", "2026-11-21"},
                                                                                       {"commit", "abc"},
                                                                                       {"version", "1"},
                                                                                       {"compiler", "GNU 12"},
                                                                                       {"sources", empty},
                                                                                       {"models", empty},
                                                                                       {"seconds", 3.0},
                                                                                       {"shared_baseline", false},
                                                                                       {"two_speeds", none},
                                                                                       {"failures", none},
                                                                                       {"thrown_away", none},
                                                                                       {"repeats", none}})
    if (!line.contains(name)) line[name] = value;
  if (line.contains("machine"))
    add(line["machine"], {{"cpu", "a CPU"},
                          {"cores", 2},
                          {"os", "an OS"},
                          {"memory_gib", 4},
                          {"device", "cpu"},
                          {"description", ""},
                          {"instructions", ""}});
  if (!line.contains("error"))
    add(line,
        {{"promise", "exact"}, {"agreement", {{"compared", false}, {"compared_texts", 0}, {"differing_texts", 0}}}});
  if (!line["repeats"].is_array()) return line;
  for (json& repeat : line["repeats"])
    for (const char* name : {"baseline", "speculative"}) {
      if (!repeat.is_object() || !repeat.contains(name)) continue;
      json& side = repeat[name];
      add(side, {{"cut", 0}, {"no_draft", empty}, {"steps_of_rows", none}, {"gaps", empty}});
      if (!side.contains("requests") || !side["requests"].is_array()) continue;
      for (json& request : side["requests"]) add(request, {{"turn", 0}, {"first_tokens", 1}});
    }
  return line;
}

}  // namespace foretoken::test

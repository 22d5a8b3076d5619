// A small trace made by hand: two requests of three tokens, chains of two levels.
#pragma once
#include <filesystem>

#include "experiments/report/results.h"
#include "experiments/trace/trace.h"

namespace foretoken::test {

inline Trace made_trace() {
  using nlohmann::json;
  const json run{{"target", {{"model", "a"}}},
                 {"drafter", {{"name", "draft_model"}}},
                 {"policy", {{"name", "fixed"}, {"length", 2}}},
                 {"verifier", {{"name", "speculative_sampling"}}},
                 {"sampling", {{"temperature", 1}}},
                 {"workload", {{"max_new_tokens", 3}}},
                 {"engine", {{"batch", 1}}}};
  Trace trace;
  trace.header = {{"run", run},    {"key", key_of(run)}, {"dense", true},
                  {"race", false}, {"learns", false},    {"positions", 64}};
  trace.requests = {{0, "story", 4, 3}, {3, "math", 5, 3}};
  for (int request = 0; request < 2; ++request)
    for (int at = 0; at < 3; ++at) {
      TracedStep s;
      s.judged = 1, s.depth = 2 - at, s.rows = 3 - at;
      s.phases.total = 0.010 + 0.001 * (s.rows - 1) + 0.002 * s.depth, s.phases.draft_forward = 0.0015 * s.depth,
      s.phases.draft_other = 0.0005 * s.depth;
      TracedRound r;
      r.request = request, r.at = at, r.emitted = {11 + at}, r.p_next = 0.5;
      for (int n = 0; n < s.depth; ++n) {
        r.nodes.push_back({n, 11 + at + n, Drawn::chain, 0.5, 0.625, 0.8});
        r.overlap[n] = 0.75;
      }
      if (s.depth > 0) r.q_next = 0.25;
      if (s.depth == 2) r.reach["block_verification"] = {{0.8}, {0.8, 0.64}};
      s.rounds.push_back(std::move(r));
      trace.steps.push_back(std::move(s));
    }
  TracedStep plain;
  plain.baseline = true, plain.rows = plain.judged = 1, plain.phases.total = 0.009;
  trace.steps.push_back(plain);
  return trace;
}

inline void write_trace(const std::filesystem::path& file, const Trace& trace) {
  TraceWriter writer(file, trace.header, trace.requests);
  for (const TracedStep& s : trace.steps) writer.append(s);
  writer.close();
}

}  // namespace foretoken::test

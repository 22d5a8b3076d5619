// A summary's figures as JSON.
#include <cmath>

#include "experiments/report/summary.h"

namespace foretoken {
namespace {

using nlohmann::json;

json latency_json(const LatencyFigures& latency) {
  return {{"ttft", to_json(latency.ttft)},
          {"tpot", to_json(latency.tpot)},
          {"gap", to_json(latency.gap)},
          {"whole", to_json(latency.whole)}};
}

json side_json(const SideFigures& side) {
  return {{"tokens", side.tokens},
          {"seconds", side.seconds},
          {"rounds", side.rounds},
          {"steps", side.steps},
          {"drafted", side.drafted},
          {"tested", side.tested},
          {"accepted", side.accepted},
          {"prompt_tokens", side.prompt_tokens},
          {"prefix_rows", side.prefix_rows},
          {"preempted", side.preempted},
          {"log_probability", finite(side.log_probability)},
          {"latency_ms", latency_json(side.latency)},
          {"cut", side.cut},
          {"no_draft", side.no_draft},
          {"recorded", finite(side.recorded)},
          {"unrecorded", finite(side.unrecorded)},
          {"tokens_per_second", finite(side.tokens_per_second)},
          {"decode_tokens_per_second", finite(side.decode_tokens_per_second)},
          {"ttft_ms", finite(side.ttft_ms)},
          {"ms_per_token", finite(side.ms_per_token)},
          {"engine_overhead", finite(side.overhead)},
          {"memory", to_json(side.memory)},
          {"phases", to_json(side.phases)}};
}

json theory_json(const TheoryFigures& theory) {
  return {{"draft_length", theory.draft_length},
          {"mean_drafted", finite(theory.mean_drafted)},
          {"branched", theory.branched},
          {"full_length", theory.full_length},
          {"tau", finite(theory.tau)},
          {"cost_ratio", finite(theory.cost)},
          {"plain_ms", finite(theory.plain_ms)},
          {"draft_ms", finite(theory.draft_ms)},
          {"verify_ms", finite(theory.verify_ms)},
          {"speedup", finite(theory.speedup)}};
}

json lists_json(const Summary& summary) {
  json positions = json::array(), categories = json::array(), prompts = json::array();
  for (const PositionFigures& at : summary.positions)
    positions.push_back({{"position", at.position},
                         {"drafted", at.drafted},
                         {"tested", at.tested},
                         {"accepted", at.accepted},
                         {"rate", finite(at.rate)},
                         {"rate_low", finite(at.rate_interval.low)},
                         {"rate_high", finite(at.rate_interval.high)},
                         {"reached", finite(at.reached)}});
  for (const CategoryFigures& category : summary.categories)
    categories.push_back({{"category", category.name},
                          {"prompts", category.prompts},
                          {"alpha", to_json(category.alpha)},
                          {"tau", to_json(category.tau)},
                          {"speedup", to_json(category.speedup)}});
  for (const PromptFigures& prompt : summary.by_prompt)
    prompts.push_back({{"prompt", prompt.prompt},
                       {"category", prompt.category.empty() ? json(nullptr) : json(prompt.category)},
                       {"alpha", finite(prompt.alpha)},
                       {"tau", finite(prompt.tau)},
                       {"speedup", finite(prompt.speedup)}});
  return {{"positions", positions}, {"categories", categories}, {"by_prompt", prompts}};
}

json to_json(const LeftOutTurns& turns) {
  return {{"speculative", turns.speculative},
          {"baseline", turns.baseline},
          {"context", turns.any() ? json(turns.context) : json()}};
}

}  // namespace

json finite(double x) { return std::isfinite(x) ? json(x) : json(nullptr); }

json to_json(const Quantiles& q) { return {{"p50", finite(q.p50)}, {"p90", finite(q.p90)}, {"p99", finite(q.p99)}}; }

json to_json(const MemoryFigures& memory) {
  return {{"target_weights", finite(memory.target_weights)},
          {"draft_weights", finite(memory.draft_weights)},
          {"cache", finite(memory.cache)},
          {"cache_used", finite(memory.cache_used)},
          {"scratch", finite(memory.scratch)},
          {"total", finite(memory.total())}};
}

json to_json(const Interval& interval) {
  return {{"value", finite(interval.value)}, {"low", finite(interval.low)}, {"high", finite(interval.high)}};
}

json to_json(const Summary& summary) {
  json found = to_json(summary.result);
  found.erase("repeats");
  found["promise"] = summary.promise;
  if (summary.failed()) {
    found["error"] = summary.error;
    return found;
  }
  json figures = {{"repeats", summary.repeats},
                  {"prompts", summary.prompts},
                  {"failed_requests", summary.failed_requests},
                  {"prompts_left_out", summary.left_out},
                  {"turns_left_out", to_json(summary.left_out_turns)},
                  {"alpha", to_json(summary.alpha)},
                  {"accept_rate", to_json(summary.accept_rate)},
                  {"tau", to_json(summary.tau)},
                  {"speedup", to_json(summary.speedup)},
                  {"steady_speedup", to_json(summary.steady_speedup)},
                  {"steady_share", finite(summary.steady_share)},
                  {"decode_speedup", to_json(summary.decode_speedup)},
                  {"acceptance_length", finite(summary.acceptance_length)},
                  {"question_speedup", finite(summary.question_speedup)},
                  {"from_cache", finite(summary.from_cache)},
                  {"alternations_differ", summary.alternations_differ},
                  {"two_speeds", summary.two_speeds ? json{{"ratio", summary.two_speeds->ratio},
                                                           {"slower", summary.two_speeds->slower}}
                                                    : json()},
                  {"tokens_per_second", to_json(summary.tokens_per_second)},
                  {"prompts_alone", summary.prompts_alone},
                  {"speculative", side_json(summary.speculative)},
                  {"baseline", side_json(summary.baseline)},
                  {"theory", theory_json(summary.theory)},
                  {"load", to_json(summary.load)},
                  {"histogram", summary.histogram}};
  figures.update(lists_json(summary));
  found["figures"] = std::move(figures);
  return found;
}

}  // namespace foretoken

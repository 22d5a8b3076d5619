#include "experiments/report/side_figures.h"

#include <vector>

#include "experiments/report/divide.h"
#include "experiments/report/latency.h"

namespace foretoken {
namespace {

using nlohmann::json;

Phases read_phases(const json& phases) {
  Phases found;
  found.schedule = phases.at("schedule").get<double>();
  found.draft_forward = phases.at("draft_forward").get<double>();
  found.draft_other = phases.at("draft_other").get<double>();
  found.target_forward = phases.at("target_forward").get<double>();
  found.verify = phases.at("verify").get<double>();
  found.deliver = phases.at("deliver").get<double>();
  found.total = phases.at("total").get<double>();
  return found;
}

Phases unknown_phases() {
  Phases phases;
  for (double Phases::* part : {&Phases::schedule, &Phases::draft_forward, &Phases::draft_other,
                                &Phases::target_forward, &Phases::verify, &Phases::deliver, &Phases::total})
    phases.*part = kUnknown;
  return phases;
}

// A total of a side, and the same of one request; null where it is only known of the whole side.
struct Sum {
  const char *key, *of_request;
  double SideFigures::* sum;
};
constexpr Sum kSums[] = {{"tokens", "tokens", &SideFigures::tokens},
                         {"seconds", "share_seconds", &SideFigures::seconds},
                         {"rounds", "rounds", &SideFigures::rounds},
                         {"drafted", "drafted", &SideFigures::drafted},
                         {"tested", "tested", &SideFigures::tested},
                         {"accepted", "accepted", &SideFigures::accepted},
                         {"prompt_tokens", "prompt_tokens", &SideFigures::prompt_tokens},
                         {"steps", nullptr, &SideFigures::steps},
                         {"prefix_rows", nullptr, &SideFigures::prefix_rows},
                         {"preempted", nullptr, &SideFigures::preempted}};

// The most of the repeats so far and of this one.
void add_memory(const json& measure, MemoryFigures& most) {
  const json memory = measure.value("memory", json::object());
  for (const auto& [key, figure] :
       {std::pair("target_weights", &MemoryFigures::target_weights),
        std::pair("draft_weights", &MemoryFigures::draft_weights), std::pair("cache", &MemoryFigures::cache),
        std::pair("cache_used", &MemoryFigures::cache_used), std::pair("scratch", &MemoryFigures::scratch)}) {
    const auto found = memory.find(key);
    const bool known = found != memory.end() && !found->is_null();
    const double bytes = known ? found->get<double>() : kUnknown;
    if (!(bytes <= most.*figure)) most.*figure = bytes;
  }
}

}  // namespace

// A request's first round processes its prompt and emits all accepted tokens of its first draft at once; the rest is
// decoding. In lines without that number of tokens it counts as one. `left_out`: prompts that are in no figure.
SideFigures summarize_side(const json& repeats, const char* name, const std::set<int>& left_out) {
  SideFigures side;
  std::vector<double> ttft;
  double decode_tokens = 0, decode_seconds = 0;
  for (const json& repeat : repeats) {
    const json& measure = repeat.at(name);
    for (const auto& [key, of_request, sum] : kSums) side.*sum += measure.at(key).get<double>();
    side.recorded += measure.value("recorded", kUnknown);
    side.unrecorded += measure.value("unrecorded", kUnknown);
    side.cut += measure.value("cut", 0.0);
    const json no_draft = measure.value("no_draft", json::object());
    for (const auto& [reason, rounds] : no_draft.items()) side.no_draft[reason] += rounds.get<double>();
    side.phases += read_phases(measure.at("phases"));
    add_memory(measure, side.memory);
    for (const json& request : measure.at("requests")) {
      if (left_out.contains(request.at("prompt").get<int>())) {
        for (const auto& [key, of_request, sum] : kSums)
          if (of_request) side.*sum -= request.at(of_request).get<double>();
        continue;
      }
      ttft.push_back(1000 * request.at("ttft").get<double>());
      side.steady_seconds += request.value("steady_seconds", kUnknown);  // unknown: the line is older
      side.log_probability += request.value("log_probability", kUnknown);
      decode_tokens += request.at("tokens").get<double>() - request.value("first_tokens", 1.0);
      decode_seconds += request.at("decode_seconds").get<double>();
    }
  }
  if (!left_out.empty()) side.phases = unknown_phases();
  side.tokens_per_second = divide(side.tokens, side.seconds);
  side.decode_tokens_per_second = divide(decode_tokens, decode_seconds);
  side.ms_per_token = divide(1000 * decode_seconds, decode_tokens);
  side.log_probability = divide(side.log_probability, side.tokens);
  side.latency = latency_of(repeats, name, left_out);
  side.ttft_ms = median(std::move(ttft));
  side.overhead = divide(side.phases.overhead(), side.phases.total);
  return side;
}

LeftOutTurns left_out_turns_of(const json& repeats) {
  LeftOutTurns found;
  for (const auto& [name, turns] :
       {std::pair("speculative", &LeftOutTurns::speculative), std::pair("baseline", &LeftOutTurns::baseline)})
    for (const json& repeat : repeats) {
      const json& measure = repeat.at(name);
      if (!measure.contains("left_out")) continue;
      found.*turns = std::max(found.*turns, int(measure["left_out"].at("turns").size()));
      found.context = measure["left_out"].at("context").get<int>();
    }
  return found;
}

}  // namespace foretoken

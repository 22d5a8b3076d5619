#include "experiments/report/side_figures.h"

#include <algorithm>
#include <utility>

#include "experiments/report/divide.h"
#include "experiments/report/time_counts.h"

namespace foretoken {
namespace {

Phases unknown_phases() {
  Phases phases;
  for (double Phases::* part : {&Phases::schedule, &Phases::draft_forward, &Phases::draft_other,
                                &Phases::target_forward, &Phases::verify, &Phases::deliver, &Phases::total})
    phases.*part = kUnknown;
  return phases;
}

// A total of a side, and the same of one request.
struct Sum {
  long SideRecord::*of_side, RequestRecord::*of_request;
  double SideFigures::* sum;
};
constexpr Sum kSums[] = {{&SideRecord::tokens, &RequestRecord::tokens, &SideFigures::tokens},
                         {&SideRecord::rounds, &RequestRecord::rounds, &SideFigures::rounds},
                         {&SideRecord::drafted, &RequestRecord::drafted, &SideFigures::drafted},
                         {&SideRecord::tested, &RequestRecord::tested, &SideFigures::tested},
                         {&SideRecord::accepted, &RequestRecord::accepted, &SideFigures::accepted},
                         {&SideRecord::prompt_tokens, &RequestRecord::prompt_tokens, &SideFigures::prompt_tokens}};

// The most of the repeats so far and of this one.
void add_memory(const std::optional<MemoryUsed>& memory, MemoryFigures& most) {
  const auto add = [](std::optional<double> bytes, double& figure) {
    if (!(bytes.value_or(kUnknown) <= figure)) figure = bytes.value_or(kUnknown);
  };
  const auto scratch = memory ? memory->scratch : std::nullopt;
  add(memory ? std::optional(memory->target_weights) : std::nullopt, most.target_weights);
  add(memory ? std::optional(memory->draft_weights) : std::nullopt, most.draft_weights);
  add(memory ? std::optional(memory->cache) : std::nullopt, most.cache);
  add(memory ? std::optional(memory->cache_used) : std::nullopt, most.cache_used);
  add(scratch, most.scratch);
}

double known(const std::optional<long>& count) { return count ? double(*count) : kUnknown; }

void add_totals(const SideRecord& measured, SideFigures& side) {
  for (const Sum& s : kSums) side.*s.sum += double(measured.*s.of_side);
  side.seconds += measured.seconds;
  side.steps += double(measured.steps);
  side.prefix_rows += double(measured.prefix_rows);
  side.preempted += double(measured.preempted);
  side.recorded += known(measured.recorded);
  side.unrecorded += known(measured.unrecorded);
  side.cut += double(measured.cut);
  for (const auto& [reason, rounds] : measured.no_draft) side.no_draft[reason] += double(rounds);
  side.phases += measured.phases;
  add_memory(measured.memory, side.memory);
}

void leave_out(const RequestRecord& request, SideFigures& side) {
  for (const Sum& s : kSums) side.*s.sum -= double(request.*s.of_request);
  side.seconds -= request.share_seconds;
}

}  // namespace

Quantiles quantiles_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return {1000 * quantile(seconds, 0.5), 1000 * quantile(seconds, 0.9), 1000 * quantile(seconds, 0.99)};
}

// A request's first round processes its prompt and emits all accepted tokens of its first draft at once; the rest is
// decoding.
SideFigures summarize_side(const std::vector<Alternation>& repeats, SideOf which, const std::set<int>& left_out) {
  SideFigures side;
  std::vector<double> ttft, tpot, whole;
  TimeCounts gaps;
  double decode_tokens = 0, decode_seconds = 0;
  for (const Alternation& repeat : repeats) {
    const SideRecord& measured = repeat.*which;
    add_totals(measured, side);
    gaps += TimeCounts(measured.gaps);
    for (const RequestRecord& request : measured.requests) {
      if (left_out.contains(request.prompt)) {
        leave_out(request, side);
        continue;
      }
      const double later = double(request.decode_tokens());
      ttft.push_back(request.ttft);
      whole.push_back(request.seconds);
      if (later > 0) tpot.push_back(request.decode_seconds / later);
      side.steady_seconds += request.steady_seconds.value_or(kUnknown);
      side.log_probability += request.log_probability.value_or(kUnknown);
      decode_tokens += later;
      decode_seconds += request.decode_seconds;
    }
  }
  if (!left_out.empty()) side.phases = unknown_phases();
  side.tokens_per_second = divide(side.tokens, side.seconds);
  side.decode_tokens_per_second = divide(decode_tokens, decode_seconds);
  side.ms_per_token = divide(1000 * decode_seconds, decode_tokens);
  side.log_probability = divide(side.log_probability, side.tokens);
  std::vector<double> ttft_ms = ttft;
  for (double& t : ttft_ms) t *= 1000;
  side.ttft_ms = median(std::move(ttft_ms));
  side.latency = {quantiles_of(std::move(ttft)),
                  quantiles_of(std::move(tpot)),
                  {1000 * gaps.quantile(0.5), 1000 * gaps.quantile(0.9), 1000 * gaps.quantile(0.99)},
                  quantiles_of(std::move(whole))};
  side.overhead = divide(side.phases.overhead(), side.phases.total);
  return side;
}

LeftOutTurns left_out_turns_of(const std::vector<Alternation>& repeats) {
  LeftOutTurns found;
  const auto add = [&](const std::optional<TurnsLeftOut>& left_out, int& turns) {
    if (!left_out) return;
    turns = std::max(turns, int(left_out->turns.size()));
    found.context = left_out->context;
  };
  for (const Alternation& repeat : repeats) add(repeat.speculative.left_out, found.speculative);
  for (const Alternation& repeat : repeats) add(repeat.baseline.left_out, found.baseline);
  return found;
}

}  // namespace foretoken

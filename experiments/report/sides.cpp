// One side of a result line in totals, and what its requests waited for; and the figures of open loops.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "experiments/report/experiment.h"
#include "experiments/report/statistics.h"
#include "experiments/report/summary.h"
#include "experiments/session/arrival_rate.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

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
  const auto add = [&](auto MemoryUsed::* part, double MemoryFigures::* figure) {
    std::optional<std::int64_t> bytes;
    if (memory) bytes = (*memory).*part;
    const double now = bytes ? double(*bytes) : kUnknown;
    if (!(now <= most.*figure)) most.*figure = now;
  };
  add(&MemoryUsed::target_weights, &MemoryFigures::target_weights);
  add(&MemoryUsed::draft_weights, &MemoryFigures::draft_weights);
  add(&MemoryUsed::cache, &MemoryFigures::cache);
  add(&MemoryUsed::cache_used, &MemoryFigures::cache_used);
  add(&MemoryUsed::scratch, &MemoryFigures::scratch);
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

using nlohmann::json;

constexpr double kGoodputShare = 0.3;  // of requests within their limits; with fewer its interval covers less than 95 %

// A number of the workload; none where it is absent or null.
std::optional<double> of_workload(const json& run, const char* key) {
  const json workload = run.value("workload", json::object());
  const auto found = workload.find(key);
  if (found == workload.end() || found->is_null()) return std::nullopt;
  return found->get<double>();
}

// Sums of one side in one alternation.
struct Sums {
  double seconds = 0, idle = 0;
  double requests = 0, ended = 0, within = 0, waiting = 0;
  double tokens = 0, steady_tokens = 0, steady_seconds = 0;
  double latencies = 0, whole = 0;  // requests that are in latencies; their seconds from arrival to end
  double decode_tokens = 0, decode_seconds = 0;
  double last = 0;  // arrival
  ServedQueue served = {};
};

bool meets(const RequestRecord& request, const Load& load) {
  const double tokens = double(request.decode_tokens());
  if (load.ttft_limit && request.ttft > *load.ttft_limit) return false;
  return !load.tpot_limit || tokens <= 0 || request.decode_seconds <= *load.tpot_limit * tokens;
}

// What a line of an open loop has.
double of_open_loop(const std::optional<double>& value, const char* name) {
  if (!value) throw Error(std::string("the run is an open loop, but its requests lack '") + name + "'");
  return *value;
}

Sums sums_of(const SideRecord& measured, const Load& load, const std::set<int>& left_out, std::vector<double>& queue) {
  Sums s{.seconds = measured.seconds, .idle = of_open_loop(measured.idle_seconds, "idle_seconds")};
  for (const RequestRecord& r : measured.requests) s.last = std::max(s.last, of_open_loop(r.arrival, "arrival"));
  for (const RequestRecord& r : measured.requests) {
    const double arrival = *r.arrival, queued = of_open_loop(r.queued, "queued");
    ++s.requests;
    s.ended += !r.failed();
    s.within += !r.failed() && meets(r, load);
    s.waiting += arrival < s.last && arrival + queued > s.last;
    s.served.requests.push_back({arrival, arrival + r.seconds});
    s.tokens += double(r.tokens);
    s.steady_tokens += r.steady_tokens ? double(*r.steady_tokens) : kUnknown;
    s.steady_seconds += r.steady_seconds.value_or(kUnknown);
    if (left_out.contains(r.prompt)) continue;
    queue.push_back(queued);
    ++s.latencies;
    s.whole += r.seconds;
    s.decode_tokens += double(r.decode_tokens());
    s.decode_seconds += r.decode_seconds;
  }
  std::ranges::sort(s.served.requests, {}, &ServedQueue::Request::arrival);
  s.served.tokens = s.tokens;
  s.served.seconds = s.seconds;
  return s;
}

// The term of every alternation.
template <class F> Measurements alternations(std::size_t n, const F& term) {
  Measurements found(1, int(n));
  for (std::size_t i = 0; i < n; ++i) found.at(0, int(i)) = term(i);
  return found;
}

// Over alternations; without bounds where one of them has none of it.
Interval interval_over(const Measurements& m) {
  const bool positive = std::ranges::all_of(m.terms, [](const Term& t) { return t.top > 0 && t.base_top > 0; });
  return positive ? paired_interval(m) : Interval::of(ratio_of_totals(m.terms));
}

LoadFigures figures_of(const std::vector<Sums>& all, const Load& load, const ArrivalRate& arrivals, int slots) {
  const auto total = [&](double Sums::* part) {
    double sum = 0;
    for (const Sums& s : all) sum += s.*part;
    return sum;
  };
  const auto rate = [&](double Sums::* part) {
    return alternations(all.size(), [&](std::size_t i) { return Term{all[i].*part, all[i].seconds}; });
  };
  LoadFigures found;
  found.served = divide(total(&Sums::ended), total(&Sums::seconds));
  std::vector<ServedQueue> queues;
  for (const Sums& s : all) queues.push_back(s.served);
  found.tokens_per_second = throughput_interval(queues, arrivals, slots);
  found.busy = 1 - divide(total(&Sums::idle), total(&Sums::seconds));
  found.capacity = divide(divide(total(&Sums::steady_tokens), total(&Sums::steady_seconds)),
                          divide(total(&Sums::tokens), total(&Sums::requests)));
  found.waiting = total(&Sums::waiting) / double(all.size());
  found.overloaded = found.capacity < load.rate && found.waiting >= 1;
  if (!load.limited()) return found;
  std::vector<Term> shares;
  for (const Sums& s : all) shares.push_back({s.within, s.requests});
  found.within = repeated_share_interval(shares);
  found.goodput = interval_over(rate(&Sums::within));
  if (found.within.value < kGoodputShare) found.goodput.low = found.goodput.high = kUnknown;
  return found;
}

json to_json(const LoadFigures& f) {
  return {{"served", finite(f.served)},
          {"tokens_per_second", foretoken::to_json(f.tokens_per_second)},
          {"busy", finite(f.busy)},
          {"capacity", finite(f.capacity)},
          {"waiting", finite(f.waiting)},
          {"overloaded", f.overloaded},
          {"queue_ms", foretoken::to_json(f.queue)},
          {"within", foretoken::to_json(f.within)},
          {"goodput", foretoken::to_json(f.goodput)}};
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
  if (!left_out.empty()) side.phases = kUnknownPhases;
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

std::optional<Load> load_of(const Result& result, const std::set<int>& left_out) {
  const json& run = result.run;
  const auto arrivals = arrival_rate_of(run);
  if (!arrivals) return std::nullopt;
  Load load{.rate = arrivals->mean(),
            .period = arrivals->period(),
            .ttft_limit = of_workload(run, "ttft_limit"),
            .tpot_limit = of_workload(run, "tpot_limit")};
  const auto read = [&](SideOf side, LoadFigures& figures) {
    std::vector<Sums> all;
    std::vector<double> queue;
    for (const Alternation& repeat : result.repeats) all.push_back(sums_of(repeat.*side, load, left_out, queue));
    figures = figures_of(all, load, *arrivals, run.at("engine").at("batch"));
    figures.queue = quantiles_of(std::move(queue));
    return all;
  };
  const std::vector<Sums> fast = read(&Alternation::speculative, load.speculative),
                          plain = read(&Alternation::baseline, load.baseline);
  if (load.varies()) {
    load.periods = 0;
    for (const Sums& s : fast) load.periods += s.last / load.period / double(fast.size());
  }
  const auto term = [&](const auto& of) { return alternations(result.repeats.size(), of); };
  load.latency_ratio = interval_over(
      term([&](std::size_t i) { return Term{plain[i].whole, plain[i].latencies, fast[i].whole, fast[i].latencies}; }));
  load.decode_speedup = interval_over(term([&](std::size_t i) {
    return Term{fast[i].decode_tokens, fast[i].decode_seconds, plain[i].decode_tokens, plain[i].decode_seconds};
  }));
  load.tokens_per_second = term([&](std::size_t i) { return Term{fast[i].tokens, fast[i].seconds}; });
  return load;
}

void leave_out_capped(Summary& summary) {
  const Load& load = *summary.load;
  summary.speedup = summary.steady_speedup = Interval::unknown();
  summary.question_speedup = summary.steady_share = summary.theory.speedup = kUnknown;
  for (CategoryFigures& category : summary.categories) category.speedup = Interval::unknown();
  for (PromptFigures& prompt : summary.by_prompt) prompt.speedup = kUnknown;
  summary.decode_speedup = load.decode_speedup;
  summary.tokens_per_second = load.speculative.tokens_per_second;
  summary.samples.speedup = Measurements(0, 0), summary.samples.tokens_per_second = load.tokens_per_second;
  summary.prompts_alone = false;
}

json to_json(const std::optional<Load>& load) {
  if (!load) return nullptr;
  return {{"rate", load->rate},
          {"period", load->varies() ? json(load->period) : json()},
          {"periods", finite(load->periods)},
          {"ttft_limit", load->ttft_limit ? json(*load->ttft_limit) : json()},
          {"tpot_limit", load->tpot_limit ? json(*load->tpot_limit) : json()},
          {"latency_ratio", to_json(load->latency_ratio)},
          {"speculative", to_json(load->speculative)},
          {"baseline", to_json(load->baseline)}};
}

}  // namespace foretoken

#include "experiments/report/load.h"

#include <algorithm>
#include <string>
#include <vector>

#include "experiments/report/divide.h"
#include "experiments/report/side_figures.h"
#include "experiments/report/summary.h"
#include "experiments/report/throughput.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

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
  ServedQueue served = {};
};

bool meets(const RequestRecord& request, const Load& load) {
  const double tokens = double(request.decode_tokens());
  if (load.ttft_limit && request.ttft > *load.ttft_limit) return false;
  return !load.tpot_limit || tokens <= 0 || request.decode_seconds <= *load.tpot_limit * tokens;
}

// What a line of an open loop has.
double of_open_loop(const std::optional<double>& value, const char* name) {
  if (!value) throw Error(std::string("the run has a '/workload/rate', but its requests lack '") + name + "'");
  return *value;
}

Sums sums_of(const SideRecord& measured, const Load& load, const std::set<int>& left_out, std::vector<double>& queue) {
  Sums s{.seconds = measured.seconds, .idle = of_open_loop(measured.idle_seconds, "idle_seconds")};
  double last = 0;
  for (const RequestRecord& r : measured.requests) last = std::max(last, of_open_loop(r.arrival, "arrival"));
  for (const RequestRecord& r : measured.requests) {
    const double arrival = *r.arrival, queued = of_open_loop(r.queued, "queued");
    ++s.requests;
    s.ended += !r.failed();
    s.within += !r.failed() && meets(r, load);
    s.waiting += arrival < last && arrival + queued > last;
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
  return positive ? paired_interval(m) : Interval{ratio_of_totals(m.terms), kUnknown, kUnknown};
}

LoadFigures figures_of(const std::vector<Sums>& all, const Load& load, int places) {
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
  found.tokens_per_second = throughput_interval(queues, load.rate, places);
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

std::optional<double> rate_of(const json& run) { return of_workload(run, "rate"); }

std::optional<Load> load_of(const Result& result, const std::set<int>& left_out) {
  const json& run = result.run;
  const auto rate = rate_of(run);
  if (!rate) return std::nullopt;
  Load load{.rate = *rate, .ttft_limit = of_workload(run, "ttft_limit"), .tpot_limit = of_workload(run, "tpot_limit")};
  const auto read = [&](SideOf side, LoadFigures& figures) {
    std::vector<Sums> all;
    std::vector<double> queue;
    for (const Alternation& repeat : result.repeats) all.push_back(sums_of(repeat.*side, load, left_out, queue));
    figures = figures_of(all, load, run.at("engine").at("batch"));
    figures.queue = quantiles_of(std::move(queue));
    return all;
  };
  const std::vector<Sums> fast = read(&Alternation::speculative, load.speculative),
                          plain = read(&Alternation::baseline, load.baseline);
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
          {"ttft_limit", load->ttft_limit ? json(*load->ttft_limit) : json()},
          {"tpot_limit", load->tpot_limit ? json(*load->tpot_limit) : json()},
          {"latency_ratio", to_json(load->latency_ratio)},
          {"speculative", to_json(load->speculative)},
          {"baseline", to_json(load->baseline)}};
}

}  // namespace foretoken

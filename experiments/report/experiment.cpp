#include "experiments/report/experiment.h"

#include <algorithm>
#include <cmath>

#include "experiments/report/statistics.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// Adds an array, element by element, where the request has it.
void add_counts(const std::optional<std::vector<long>>& found, std::vector<double>& sums) {
  if (!found) return;
  if (found->size() > sums.size()) sums.resize(found->size());
  for (std::size_t i = 0; i < found->size(); ++i) sums[i] += double((*found)[i]);
}

void add_requests(const SideRecord& measured, int repeat, Prompts& side, Experiment& e) {
  double shares = 0;
  for (const RequestRecord& request : measured.requests) {
    Served& served = side.try_emplace(request.prompt, e.repeats).first->second[std::size_t(repeat)];
    served.tokens += double(request.tokens);
    served.seconds += request.share_seconds;
    served.rounds += double(request.rounds);
    served.drafted += double(request.drafted);
    served.tested += double(request.tested);
    served.accepted += double(request.accepted);
    served.decode_tokens += double(request.decode_tokens());
    served.decode_seconds += request.decode_seconds;
    served.steady_tokens += request.steady_tokens ? double(*request.steady_tokens) : kUnknown;
    served.steady_seconds += request.steady_seconds.value_or(kUnknown);
    add_counts(request.tested_at, served.tested_at);
    add_counts(request.accepted_at, served.accepted_at);
    shares += request.share_seconds;
    if (request.category) e.category[request.prompt] = *request.category;
    if (request.failed()) e.failed.insert(request.prompt);
  }
  const double seconds = measured.seconds, idle = measured.idle_seconds.value_or(0);
  if (std::abs(shares + idle - seconds) > 0.01 * seconds + 1e-6)
    throw Error("the requests' shares of the time add up to " + std::to_string(shares) + " s, not to the " +
                std::to_string(seconds) + " s measured" +
                (idle > 0 ? ", of which " + std::to_string(idle) + " s were idle" : ""));
}

}  // namespace

Experiment read_experiment(const std::vector<Alternation>& repeats, int slots) {
  Experiment found;
  found.repeats = int(repeats.size());
  for (int r = 0; r < found.repeats; ++r) {
    add_requests(repeats[std::size_t(r)].speculative, r, found.speculative, found);
    add_requests(repeats[std::size_t(r)].baseline, r, found.baseline, found);
  }
  for (const int prompt : found.failed) found.speculative.erase(prompt), found.baseline.erase(prompt);
  if (!found.failed.empty() && found.speculative.empty()) throw Error("every prompt has a request that failed");
  const auto prompts = [](const Prompts& side) {
    std::set<int> all;
    for (const auto& [prompt, served] : side)
      if (std::ranges::all_of(served, [](const Served& s) { return s.rounds > 0; })) all.insert(prompt);
    return all;
  };
  if (found.speculative.empty() || prompts(found.speculative).size() != found.speculative.size() ||
      prompts(found.speculative) != prompts(found.baseline))
    throw Error("speculation and baseline did not serve the same prompts in every repeat");
  if (slots < 2) return found;
  const auto fast = closed_loop_of(repeats, &Alternation::speculative, slots),
             plain = closed_loop_of(repeats, &Alternation::baseline, slots);
  if (fast && plain) found.queues = {*fast, *plain};
  return found;
}

Measurements rates(const Experiment& e, const std::vector<int>& prompts, const Window& w, bool over_baseline) {
  Measurements measured(int(prompts.size()), e.repeats);
  for (int i = 0; i < int(prompts.size()); ++i)
    for (int r = 0; r < e.repeats; ++r) {
      const Served &fast = e.speculative.at(prompts[i])[r], &plain = e.baseline.at(prompts[i])[r];
      measured.at(i, r) = {fast.*w.tokens, fast.*w.seconds, 1, 1};
      if (over_baseline) measured.at(i, r) = {fast.*w.tokens, fast.*w.seconds, plain.*w.tokens, plain.*w.seconds};
    }
  return measured;
}

WholeRates::WholeRates(const Experiment& e, const std::vector<int>& prompts)
    : speedup(rates(e, prompts, kEndToEnd, true)),
      tokens_per_second(rates(e, prompts, kEndToEnd, false)),
      steady_speedup(rates(e, prompts, kSteady, true)) {
  if (!e.queues) return;
  const ServedAgain fast = served_again(e.queues->speculative), plain = served_again(e.queues->baseline);
  tokens_per_second.again = fast.whole;
  for (std::size_t b = 0; b < fast.whole.size(); ++b)
    speedup.again.push_back(fast.whole[b] - plain.whole[b]),
        steady_speedup.again.push_back(fast.steady[b] - plain.steady[b]);
}

}  // namespace foretoken

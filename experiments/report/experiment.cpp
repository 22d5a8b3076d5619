#include "experiments/report/experiment.h"

#include <algorithm>
#include <cmath>

#include "experiments/report/divide.h"
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

Experiment read_experiment(const std::vector<Alternation>& repeats, int places) {
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
  if (places < 2) return found;
  const auto fast = closed_loop_of(repeats, &Alternation::speculative, places),
             plain = closed_loop_of(repeats, &Alternation::baseline, places);
  if (fast && plain) found.queues = {*fast, *plain};
  return found;
}

}  // namespace foretoken

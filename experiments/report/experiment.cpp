#include "experiments/report/experiment.h"

#include <algorithm>
#include <cmath>

#include "experiments/report/divide.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

bool failed(const json& request) { return request.value("finish", "") == "failed"; }

// Adds an array, element by element, where the request has it.
void add_counts(const json& request, const char* key, std::vector<double>& sums) {
  if (!request.contains(key)) return;
  const auto found = request[key].get<std::vector<double>>();
  if (found.size() > sums.size()) sums.resize(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) sums[i] += found[i];
}

void add_requests(const json& measure, int repeat, Prompts& side, Experiment& e) {
  double shares = 0;
  for (const json& request : measure.at("requests")) {
    const int prompt = request.at("prompt").get<int>();
    std::vector<Served>& row = side.try_emplace(prompt, e.repeats).first->second;
    Served& served = row[repeat];
    served.tokens += request.at("tokens").get<double>();
    served.seconds += request.at("share_seconds").get<double>();
    served.rounds += request.at("rounds").get<double>();
    served.drafted += request.at("drafted").get<double>();
    served.tested += request.at("tested").get<double>();
    served.accepted += request.at("accepted").get<double>();
    served.decode_tokens += request.at("tokens").get<double>() - request.value("first_tokens", 1.0);
    served.decode_seconds += request.at("decode_seconds").get<double>();
    served.steady_tokens += request.value("steady_tokens", kUnknown);
    served.steady_seconds += request.value("steady_seconds", kUnknown);
    add_counts(request, "tested_at", served.tested_at), add_counts(request, "accepted_at", served.accepted_at);
    shares += request.at("share_seconds").get<double>();
    if (request.contains("category") && request["category"].is_string()) e.category[prompt] = request["category"];
    if (failed(request)) e.failed.insert(prompt);
  }
  const double seconds = measure.at("seconds").get<double>(), idle = measure.value("idle_seconds", 0.0);
  if (std::abs(shares + idle - seconds) > 0.01 * seconds + 1e-6)
    throw Error("the requests' shares of the time add up to " + std::to_string(shares) + " s, not to the " +
                std::to_string(seconds) + " s measured" +
                (idle > 0 ? ", of which " + std::to_string(idle) + " s were idle" : ""));
}

}  // namespace

Experiment read_experiment(const json& repeats, int places) {
  Experiment found;
  found.repeats = int(repeats.size());
  for (int r = 0; r < found.repeats; ++r) {
    add_requests(repeats[r].at("speculative"), r, found.speculative, found);
    add_requests(repeats[r].at("baseline"), r, found.baseline, found);
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
  const auto fast = closed_loop_of(repeats, "speculative", places), plain = closed_loop_of(repeats, "baseline", places);
  if (fast && plain) found.queues = {*fast, *plain};
  return found;
}

}  // namespace foretoken

#include "experiments/report/experiment.h"

#include <algorithm>
#include <cmath>

#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

bool failed(const json& request) { return request.value("finish", "") == "failed"; }

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
    shares += request.at("share_seconds").get<double>();
    if (request.contains("category") && request["category"].is_string()) e.category[prompt] = request["category"];
    if (failed(request)) e.failed.insert(prompt);
  }
  const double seconds = measure.at("seconds").get<double>();
  if (std::abs(shares - seconds) > 0.01 * seconds + 1e-6)
    throw Error("the requests' shares of the time add up to " + std::to_string(shares) + " s, not to the " +
                std::to_string(seconds) + " s measured");
}

}  // namespace

Experiment read_experiment(const json& repeats) {
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
  return found;
}

}  // namespace foretoken

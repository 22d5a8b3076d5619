#include "experiments/report/latency.h"

#include <algorithm>

#include "experiments/report/statistics.h"
#include "experiments/report/time_counts.h"

namespace foretoken {

using nlohmann::json;

Quantiles quantiles_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return {1000 * quantile(seconds, 0.5), 1000 * quantile(seconds, 0.9), 1000 * quantile(seconds, 0.99)};
}

LatencyFigures latency_of(const json& repeats, const char* side, const std::set<int>& left_out) {
  std::vector<double> ttft, tpot, whole;
  TimeCounts gaps;
  for (const json& repeat : repeats) {
    const json& measure = repeat.at(side);
    gaps += TimeCounts::of(measure.value("gaps", json::object()));
    for (const json& request : measure.at("requests")) {
      if (left_out.contains(request.at("prompt").get<int>())) continue;
      ttft.push_back(request.at("ttft").get<double>());
      whole.push_back(request.at("seconds").get<double>());
      const double later = request.at("tokens").get<double>() - request.value("first_tokens", 1.0);
      if (later > 0) tpot.push_back(request.at("decode_seconds").get<double>() / later);
    }
  }
  return {quantiles_of(std::move(ttft)),
          quantiles_of(std::move(tpot)),
          {1000 * gaps.quantile(0.5), 1000 * gaps.quantile(0.9), 1000 * gaps.quantile(0.99)},
          quantiles_of(std::move(whole))};
}

}  // namespace foretoken

#include "experiments/bench/scenario_bars.h"

#include <cstdio>

namespace foretoken {
namespace {

using nlohmann::json;

const char* verdict(bool met) { return met ? "met" : "MISSED"; }

std::string figure(double v) {
  char text[32];
  return std::snprintf(text, sizeof text, "%.4g", v), text;
}

}  // namespace

std::string ScenarioBars::judge(const Scenario& s, const ScenarioTimes& times, json& line) {
  json bars = json::array();
  std::string text;
  const auto judged = [&](const std::string& bar, const std::string& of, double value, double most) {
    if (!text.empty()) text += "; ";
    text += figure(value) + " of " + of;
    if (most > 0) text += " (at most " + figure(most) + ": " + verdict(value <= most) + ")";
    json j{{"bar", bar}, {"value", value}};
    if (most > 0) j["most"] = most, j["met"] = value <= most;
    bars.push_back(j);
  };
  if (s.bar_ms > 0) {
    text = verdict(times.ms <= s.bar_ms);
    bars.push_back({{"bar", "ms"}, {"value", times.ms}, {"most", s.bar_ms}, {"met", times.ms <= s.bar_ms}});
  }
  if (const auto other = ms_.find(s.over); other != ms_.end()) {
    judged("over", "'" + s.over + "'", times.ms / other->second, s.most);
    bars.back()["over"] = s.over;
  }
  if (s.verify_share > 0) judged("verify_share", "the step verifies", times.verify_ms / times.ms, s.verify_share);
  if (s.host_share > 0) judged("host_share", "the step is the host's", times.host_ms / times.ms, s.host_share);
  if (s.draft_most > 0 && times.draft_forward_ms > 0)
    judged("draft_most", "the draft's forwards", times.draft_ms / times.draft_forward_ms, s.draft_most);
  ms_[s.name] = times.ms;
  if (!bars.empty()) line["bars"] = bars;
  return text;
}

}  // namespace foretoken

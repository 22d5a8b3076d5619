#include "experiments/report/page_figure.h"

#include <set>

#include "experiments/report/summary.h"

namespace foretoken {

using nlohmann::json;

namespace {

// One scale for all panels of a figure: {title, domain, log (its base; 0: linear), ticks (null: the page finds some)}.
// Wide intervals are cut rather than that they press all values together.
json scale_json(const Panels& panels, const ScaleKind& kind, bool across) {
  std::set<double> values(kind.holds.begin(), kind.holds.end());
  double low = INFINITY, high = -INFINITY;
  for (const Panel& panel : panels.all)
    for (const MarkSeries& series : panel.series)
      for (const PlotMark& mark : series.marks) {
        values.insert(across ? mark.x : mark.y.value);
        if (across || !mark.y.bounded()) continue;
        low = std::min(low, mark.y.low), high = std::max(high, mark.y.high);
      }
  if (values.empty()) return {{"title", kind.title}, {"domain", {0, 1}}, {"log", 0}, {"ticks", nullptr}};
  const double least = *values.begin(), most = *values.rbegin(), span = std::max(most - least, 0.25 * std::abs(most));
  low = std::min(least, std::max(low, least - span)), high = std::max(most, std::min(high, most + span));
  const bool log = kind.octaves && values.size() > 2 && least > 0 && most / least >= 8;
  const double margin = high > low ? 0.05 * (high - low) : high == 0 ? 0.5 : 0.5 * std::abs(high);
  json domain = {kind.from_zero ? 0 : low - margin, kind.from_zero ? 1.05 * high : high + margin};
  if (log) domain = {least / 1.2, most * 1.2};
  const bool few = kind.discrete && values.size() <= (log ? 10u : 8u);
  return {{"title", kind.title},
          {"domain", domain},
          {"log", !log            ? 0
                  : kind.discrete ? 2
                                  : 10},
          {"ticks", few ? json(values) : json()}};
}

}  // namespace

json mark_json(const PlotMark& mark) {
  return {{"x", mark.x},       {"y", mark.y.value},     {"low", finite(mark.y.low)}, {"high", finite(mark.y.high)},
          {"runs", mark.runs}, {"hollow", mark.hollow}, {"text", mark.text}};
}

json figure_json(Panels panels, const std::string& title, const ScaleKind& x, const ScaleKind& y, bool merged) {
  json drawn = json::array();
  for (Panel& panel : panels.all) {
    json list = json::array();
    for (MarkSeries& series : panel.series) {
      std::ranges::stable_sort(series.marks, {},
                               [&](const PlotMark& mark) { return std::pair(mark.x, merged ? -mark.rank : 0.0); });
      json points = json::array();
      for (std::size_t i = 0; i < series.marks.size(); ++i) {
        if (!merged || i == 0 || series.marks[i - 1].x != series.marks[i].x) points.push_back(json::array());
        points.back().push_back(mark_json(series.marks[i]));
      }
      list.push_back({{"name", series.name}, {"points", points}});
    }
    drawn.push_back({{"title", panel.title}, {"series", list}});
  }
  return {{"title", title}, {"x", scale_json(panels, x, true)}, {"y", scale_json(panels, y, false)}, {"panels", drawn}};
}

}  // namespace foretoken

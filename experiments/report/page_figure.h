// Panels of marks as the page draws them. This module must not know what they mean.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/statistics.h"

namespace foretoken {

using Indices = std::vector<std::size_t>;

// One mark of a plot. Where several have a place of their series, the first by `rank` is shown of those whose runs are.
struct PlotMark {
  double x = 0;
  Interval y{};
  double rank = 0;
  Indices runs;
  bool hollow = false;  // the output is not plain decoding's distribution
  std::vector<std::string> text;
};

struct MarkSeries {
  std::string name;
  std::vector<PlotMark> marks;
};
struct Panel {
  std::string title;
  std::vector<MarkSeries> series;
};

// Panels in the order in which they are met, and their series.
struct Panels {
  std::vector<Panel> all;

  void add(const std::string& panel, const std::string& series, PlotMark mark) {
    if (!std::isfinite(mark.x) || !std::isfinite(mark.y.value)) return;
    at(at(all, panel.empty() ? "all runs" : panel, &Panel::title).series, series, &MarkSeries::name)
        .marks.push_back(std::move(mark));
  }

 private:
  template <class T> static T& at(std::vector<T>& list, const std::string& name, std::string T::* key) {
    const auto known = std::ranges::find(list, name, key);
    if (known != list.end()) return *known;
    list.emplace_back().*key = name;
    return list.back();
  }
};

struct ScaleKind {
  std::string title;
  bool discrete = false, octaves = false, from_zero = false;
  std::vector<double> holds{};  // values that it must hold
};

nlohmann::json mark_json(const PlotMark& mark);

// {title, x, y: scales, panels: [{title, series: [{name, points: [candidates of one point]}]}]}. `merged`: marks of a
// series with one x are candidates for one point. All panels have the same scales.
nlohmann::json figure_json(Panels panels, const std::string& title, const ScaleKind& x, const ScaleKind& y,
                           bool merged);

}  // namespace foretoken

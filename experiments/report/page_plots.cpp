// What the plots of the page show, as JSON.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "experiments/report/notes.h"
#include "experiments/report/page.h"
#include "experiments/report/report.h"

namespace foretoken {
namespace {

using nlohmann::json;

const std::string kPlain = "plain decoding";

// Draws the plots of one view: a name has one colour in all of them.
class Plots {
 public:
  explicit Plots(const View& view) : view_(view) {
    for (const Summary& s : view.cells) runs_.push_back(s.run());
  }

  json all(const PlotChoice& choice) {
    json found = json::array();
    if (choice.given()) found.push_back(own(choice));
    const std::vector<std::string> axes = plotted();
    for (const std::string& x : axes) found.push_back(over("speedup-" + x.substr(1), {x, "speedup", "", ""}));
    const bool open = any([](const Summary& s) { return s.load.has_value(); });
    const bool closed = any([](const Summary& s) { return s.speedup.known(); });
    if (axes.empty() && closed) found.push_back(speedup_rows());
    if (open) found.push_back(loads());
    found.push_back(positions());
    found.push_back(phases());
    if (closed) found.push_back(pareto());
    return found;
  }

 private:
  template <class Wanted> bool any(const Wanted& wanted) const {
    return std::ranges::any_of(view_.cells, [&](const Summary& s) { return !s.failed() && wanted(s); });
  }

  json colour_of(const std::string& name) {
    if (name == kPlain) return "plain";
    return colours_.try_emplace(name, colours_.size()).first->second;
  }

  json figure(Panels panels, const std::string& title, const ScaleKind& x, const ScaleKind& y, bool merged,
              const json& more) {
    json found = figure_json(std::move(panels), title, x, y, merged);
    for (json& panel : found["panels"])
      for (json& series : panel["series"]) series["colour"] = colour_of(series["name"]);
    found.update(more);
    return found;
  }

  static json plot(const std::string& id, const std::string& title, const std::string& caption, const json& figures) {
    return {{"id", id},
            {"title", title},
            {"caption", caption},
            {"figures", figures.is_array() ? figures : json::array({figures})}};
  }

  std::string text_of(std::size_t i) const {
    const Summary& s = view_.cells[i];
    const std::string kind = kind_of(s.promise);
    return view_.axes.label(s.run()) + (kind.empty() || kind == "exact" ? "" : ", " + kind);
  }

  PlotMark mark(std::size_t i, double x, const Interval& y, double rank, std::vector<std::string> text) const {
    text.insert(text.begin(), text_of(i));
    const std::string kind = kind_of(view_.cells[i].promise);
    return {x, y, rank, {i}, !kind.empty() && kind != "exact", std::move(text)};
  }

  double number_at(std::size_t i, const std::string& pointer) const {
    const json value = told(runs_[i], pointer);
    return value.is_number() ? value.get<double>() : std::nan("");
  }

  // Pointers of numbers with several values in runs with a speedup: axes, and options that a sweep named.
  std::vector<std::string> plotted() const {
    std::set<std::string> candidates;
    for (const Axis& axis : view_.axes.columns())
      if (axis.numeric) candidates.insert(axis.pointer);
    for (const Summary& s : view_.cells)
      for (const auto& [pointer, value] : s.result.axes.items())
        if (value.is_number() && ComponentNames::covers(pointer)) candidates.insert(pointer);
    std::vector<std::string> found = {"/policy/length", "/engine/batch", "/sampling/temperature"};  // these come first
    for (const std::string& pointer : candidates)
      if (std::ranges::find(found, pointer) == found.end()) found.push_back(pointer);
    std::erase_if(found, [&](const std::string& pointer) {
      std::set<double> values;
      for (std::size_t i = 0; i < runs_.size(); ++i)
        if (view_.cells[i].speedup.known() && !view_.cells[i].failed() && std::isfinite(number_at(i, pointer)))
          values.insert(number_at(i, pointer));
      return values.size() < 2 || !candidates.contains(pointer);
    });
    return found;
  }

  static std::string title_of(const std::string& pointer) {
    if (pointer == "/policy/length") return "draft length";
    const std::string last = last_part(pointer), group = group_of(pointer);
    return ComponentNames::covers(pointer) ? last + " of the " + group : last;
  }

  // Axes of which none is one of these pointers, nor an option of a component named by one.
  Axes axes_without(const std::vector<std::string>& pointers) const {
    return Axes(runs_, named_axes(view_.cells), ComponentNames(runs_, pointers));
  }
  static Indices without(const Axes& axes, Indices some, const std::vector<std::string>& pointers) {
    std::erase_if(
        some, [&](std::size_t i) { return std::ranges::find(pointers, axes.columns()[i].pointer) != pointers.end(); });
    return some;
  }
  std::string series_of(std::size_t i, const Axes& axes, const Indices& some) const {
    const std::string found = axes.label(runs_[i], some);
    return found.empty() ? view_.axes.names().name(runs_[i], "/drafter").dump() : found;
  }

  // A figure over a pointer. Without colour: methods; without columns: conditions. Points that this leaves together
  // show the best of their runs.
  json over(const std::string& id, const PlotChoice& c) {
    const int better = run_figure({}, c.y, "--y").better;
    std::vector<std::string> taken = {c.x};
    for (const std::string& pointer : {c.colour, c.columns})
      if (!pointer.empty()) taken.push_back(pointer);
    const Axes axes = axes_without(taken);
    Indices methods = without(axes, axes.methods(), taken), conditions = without(axes, axes.conditions(), taken);
    if (group_of(c.x) != "policy") methods = without_policy(axes, methods);
    const auto own = [&](const std::string& pointer, std::size_t i) {
      return Axes::of_pointers(runs_, {pointer}).label(runs_[i]);
    };
    Panels panels;
    bool several = false;
    std::set<std::tuple<std::string, std::string, double>> places;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const Summary& s = view_.cells[i];
      if (s.failed()) continue;
      const Cell cell = run_figure(s, c.y, "--y").cell;
      const Interval y = cell.kind == Cell::Kind::interval ? cell.interval : Interval::of(cell.interval.value);
      const std::string panel = c.columns.empty() ? axes.label(runs_[i], conditions) : own(c.columns, i),
                        series = c.colour.empty() ? series_of(i, axes, methods) : own(c.colour, i);
      const double x = number_at(i, c.x), rank = better < 0 ? -y.value : y.value;
      if (std::isfinite(x) && std::isfinite(y.value)) several |= !places.emplace(panel, series, x).second;
      panels.add(panel, series,
                 mark(i, x, y, rank, {c.y + " " + Cell::of(y, 3).shown(), "tau " + Cell::of(s.tau, 3).shown()}));
    }
    const bool speedup = c.y.find("speedup") != std::string::npos;
    std::string caption;
    if (several)
      caption =
          "Each point is the best of the runs that share it, so it is a little too good; choose above what to hold "
          "fixed. ";
    if (speedup) caption += "Above the line at 1 speculation is faster than plain decoding. ";
    caption +=
        "Bars are 95 % intervals, where there are any. Hollow marks: the output is not plain decoding's "
        "distribution.";
    json more = json::object();
    if (speedup) more["reference"] = 1;
    return plot(id, (c.y == "speedup" ? "Speedup" : c.y) + " over " + title_of(c.x), caption,
                figure(std::move(panels), "", {.title = title_of(c.x), .discrete = true, .octaves = true},
                       {.title = c.y, .holds = speedup ? std::vector{1.0} : std::vector<double>{}}, true, more));
  }

  json own(PlotChoice choice) {
    if (choice.y.empty()) choice.y = "speedup";
    (void)run_figure({}, choice.y, "--y");
    const std::vector<std::string> axes = plotted();
    if (choice.x.empty() && axes.empty())
      throw Error("these runs have no number to draw over: name one with --x, as /engine/batch");
    if (choice.x.empty()) choice.x = axes[0];
    for (const auto& [pointer, option] :
         {std::pair(choice.x, "named by --x"), std::pair(choice.colour, "named by --colour"),
          std::pair(choice.columns, "named by --columns")})
      if (!pointer.empty()) expect_known(runs_, pointer, option);
    bool numbers = false;
    for (std::size_t i = 0; i < runs_.size(); ++i) numbers |= std::isfinite(number_at(i, choice.x));
    if (!numbers) throw Error("--x " + choice.x + " is no number in any run; name another pointer, as /engine/batch");
    json found = over("own", choice);
    if (found["figures"][0]["panels"].empty())
      throw Error("no run has the figure " + choice.y + " at a number of " + choice.x + "; name another with --y");
    return found;
  }

  json speedup_rows() const {
    json rows = json::array();
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const Summary& s = view_.cells[i];
      if (s.failed() || !s.speedup.known()) continue;
      rows.push_back(mark_json(mark(i, 0, s.speedup, 0, {"speedup " + Cell::of(s.speedup, 3).shown()})));
      rows.back()["label"] = text_of(i);
    }
    json found =
        plot("speedup-rows", "Speedup of every run",
             "With 95 % intervals, where there are any. The mark across all rows is plain decoding, 1.", json::array());
    found.update({{"intervals", rows}, {"reference", 1}});
    return found;
  }

  json positions() {
    const Axes& axes = view_.axes;
    json figures = json::array();
    const Indices methods = without_policy(axes, axes.methods());
    for (const auto& [title, rate] :
         {std::pair("accepted / tested", true), std::pair("rounds that accepted this far / rounds", false)}) {
      Panels panels;
      for (std::size_t i = 0; i < runs_.size(); ++i)
        for (const PositionFigures& at : view_.cells[i].positions) {
          const double y = rate ? at.rate : at.reached;
          const std::string counts = "accepted " + exact_number(at.accepted) + ", tested " + exact_number(at.tested) +
                                     ", drafted " + exact_number(at.drafted);
          panels.add(axes.label(runs_[i], axes.conditions()), series_of(i, axes, methods),
                     mark(i, at.position, Interval::of(y), double(view_.cells[i].positions.size()),
                          {"position " + std::to_string(at.position) + ": " + Cell::of(y, 4).shown(), counts}));
        }
      figures.push_back(
          figure(std::move(panels), title, {.title = "position in the draft", .discrete = true},
                 {.title = rate ? "accepted / tested" : "share of rounds", .from_zero = true, .holds = {1}}, true,
                 json::object()));
    }
    return plot("positions", "Acceptance by position",
                "Of runs that differ in their policy the one with the longest drafts. Trees count the levels of their "
                "nodes.",
                figures);
  }

  static Indices without_policy(const Axes& axes, Indices some) {
    std::erase_if(some, [&](std::size_t i) { return group_of(axes.columns()[i].pointer) == "policy"; });
    return some;
  }

  json phases() const {
    json rows = json::array();
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const Summary& s = view_.cells[i];
      const Phases& p = s.speculative.phases;
      if (s.failed() || !std::isfinite(p.total) || !(s.speculative.steps > 0)) continue;
      const auto ms = [&](double seconds) { return 1000 * seconds / s.speculative.steps; };
      json parts = json::array();
      for (const auto& [name, seconds] :
           {std::pair("draft", draft_seconds(p)), std::pair("target", p.target_forward), std::pair("verify", p.verify),
            std::pair("host", std::max(0.0, host_seconds(p)))})
        parts.push_back({{"name", name}, {"ms", ms(seconds)}});
      rows.push_back({{"runs", {i}},
                      {"label", text_of(i)},
                      {"total", ms(p.total)},
                      {"plain", finite(1000 * s.baseline.phases.total / s.baseline.steps)},
                      {"parts", parts}});
    }
    json found =
        plot("phases", "Time of a step",
             "Milliseconds of one step for all requests of the batch. A step with speculation emits tau tokens "
             "of each request, plain decoding's one.",
             json::array());
    found["bars"] = rows;
    return found;
  }

  // Plain decoding, which each run measured for itself: per panel and `key` the median.
  void add_plain(Panels& panels, const Indices& conditions, const std::string& key, const std::string& title,
                 const auto& point) const {
    struct Baselines {
      std::string panel, at;
      std::vector<double> xs, ys;
      Indices runs;
    };
    std::vector<Baselines> all;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (view_.cells[i].failed()) continue;
      const auto [x, y] = point(view_.cells[i]);
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      const std::string panel = view_.axes.label(runs_[i], conditions), at = value_text(told(runs_[i], key), {});
      auto known = std::ranges::find_if(all, [&](const Baselines& b) { return b.panel == panel && b.at == at; });
      if (known == all.end()) known = all.insert(known, {panel, at, {}, {}, {}});
      known->xs.push_back(x);
      known->ys.push_back(y);
      known->runs.push_back(i);
    }
    for (const Baselines& b : all) {
      const double y = median(b.ys);
      const std::string several = b.xs.size() > 1 ? ", median of " + std::to_string(b.xs.size()) + " baselines" : "";
      panels.add(b.panel, kPlain,
                 {median(b.xs),
                  Interval::of(y),
                  0,
                  b.runs,
                  false,
                  {kPlain + ", " + last_part(key) + " " + b.at + several, title + " " + Cell::of(y, 2).shown()}});
    }
  }

  json pareto() {
    const Axes& axes = view_.axes;
    const Indices conditions = without(axes, axes.conditions(), {"/engine/batch"}),
                  methods = without_policy(axes, axes.methods());
    Panels panels;
    const auto rates = [](const SideFigures& side) {
      return std::pair(side.decode_tokens_per_second, side.tokens_per_second);
    };
    add_plain(panels, conditions, "/engine/batch", "tokens/s of all", [&](const Summary& s) {
      return s.speedup.known() ? rates(s.baseline) : std::pair(std::nan(""), std::nan(""));
    });
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const Summary& s = view_.cells[i];
      if (s.failed() || !s.speedup.known()) continue;
      const auto [x, y] = rates(s.speculative);
      panels.add(
          axes.label(runs_[i], conditions), series_of(i, axes, methods),
          mark(i, x, Interval::of(y), 0,
               {Cell::of(x, 1).shown() + " tokens/s of one request", Cell::of(y, 1).shown() + " tokens/s of all"}));
    }
    return plot("pareto", "Throughput and speed of one request",
                "Tokens per second of all requests over those of one request after its first round. Right and up is "
                "better. Lines join what no other batch or policy exceeds in both (Pareto fronts).",
                figure(std::move(panels), "", {.title = "tokens/s of one request", .from_zero = true},
                       {.title = "tokens/s of all", .octaves = true, .from_zero = true}, false,
                       {{"wide", true}, {"front", true}}));
  }

  // The throughput-latency curves of serving papers.
  json loads() {
    const std::string rate = "/workload/rate";
    const Axes& axes = view_.axes;
    const Indices conditions = without(axes, axes.conditions(), {rate}), methods = axes.methods();
    json figures = json::array();
    const std::tuple<const char*, Quantiles LatencyFigures::*, double Quantiles::*> kinds[] = {
        {"time to the first token, 90 of 100 requests", &LatencyFigures::ttft, &Quantiles::p90},
        {"time per token after the first round, 90 of 100 requests", &LatencyFigures::tpot, &Quantiles::p90},
        {"time to the end, median", &LatencyFigures::whole, &Quantiles::p50}};
    for (const auto& [title, latency, quantile] : kinds) {
      const auto of = [&, latency = latency, quantile = quantile](const Summary& s, const SideFigures& side) {
        return s.load ? std::pair(s.load->rate, (side.latency.*latency).*quantile) : std::pair(std::nan(""), 0.0);
      };
      Panels panels;
      add_plain(panels, conditions, rate, "ms", [&](const Summary& s) { return of(s, s.baseline); });
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        const Summary& s = view_.cells[i];
        if (s.failed() || !s.load) continue;
        const auto [x, y] = of(s, s.speculative);
        panels.add(axes.label(runs_[i], conditions), series_of(i, axes, methods),
                   mark(i, x, Interval::of(y), -y,
                        {Cell::of(y, 2).shown() + " ms", Cell::of(s.load->speculative.served, 2).shown() + " of " +
                                                             Cell::of(x, 2).shown() + " requests/s served" +
                                                             (s.load->speculative.overloaded ? ", overload" : "")}));
      }
      figures.push_back(figure(std::move(panels), title,
                               {.title = "requests/s that arrive", .discrete = true, .octaves = true},
                               {.title = "milliseconds", .octaves = true, .from_zero = true}, true, json::object()));
    }
    return plot("load", "Latency over the rate of requests",
                "Open loops: requests arrive at a rate, at the same times for both sides, and latencies count from the "
                "arrival. Below is better, and farther right before the curve rises. Tokens per second cannot exceed "
                "what arrives, so there is no speedup. A load that rises and falls stands at its mean rate.",
                figures);
  }

  const View& view_;
  std::vector<json> runs_;
  std::map<std::string, std::size_t> colours_;
};

}  // namespace

json plots_json(const View& view, const PlotChoice& choice) { return Plots(view).all(choice); }

}  // namespace foretoken

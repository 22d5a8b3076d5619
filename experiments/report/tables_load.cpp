// Tables of open loops: throughput and latency over the rate at which requests arrive, and goodput.
#include <algorithm>
#include <cmath>

#include "experiments/report/tables.h"

namespace foretoken {
namespace {

using Kind = Column::Kind;

constexpr const char* kRate = "/workload/rate";
constexpr double kAttained = 0.9;  // the share of requests within their limits that a served rate has, as DistServe

// One side of a run with a rate.
struct LoadedSide {
  const Load& load;
  const LoadFigures& figures;
  const LatencyFigures& latency;
  bool drafts;
};

std::string overload_of(const LoadedSide& side) { return side.figures.overloaded ? "overload" : ""; }

std::vector<Column> curve_columns() {
  return {
      {"served", "served",
       "requests per second until the last one ended, a little after the last arrival; those that were drawn arrive "
       "at the rate on average"},
      {"tok/s", "tokens_per_second", ""},
      {"busy %", "busy_percent", "share of that time in which a request was running"},
      {"full", "capacity", "requests per second while all places of the batch were taken: what can be served"},
      {"ttft 50", "ttft_p50", ""},
      {"90", "ttft_p90", ""},
      {"99", "ttft_p99", ""},
      {"tpot 50", "tpot_p50", ""},
      {"90", "tpot_p90", ""},
      {"99", "tpot_p99", ""},
      {"sooner [95 %]", "latency_ratio",
       "plain decoding's mean time from a request's arrival to its end, over that with speculation; intervals of "
       "open loops are over alternations, each of which has arrivals of its own",
       Kind::interval},
      {"notes", "notes",
       "overload: while all places were taken fewer requests ended than arrive, and some had no place when the "
       "last one arrived: the queue grows as long as requests arrive, and so do latencies",
       Kind::text}};
}

std::vector<Cell> curve_cells(const LoadedSide& s) {
  const LatencyFigures& l = s.latency;
  return {Cell::of(s.figures.served, 2),
          Cell::of(s.figures.tokens_per_second.value, 1),
          Cell::of(100 * s.figures.busy, 0),
          Cell::of(s.figures.capacity, 2),
          Cell::of(l.ttft.p50, 1),
          Cell::of(l.ttft.p90, 1),
          Cell::of(l.ttft.p99, 1),
          Cell::of(l.tpot.p50, 2),
          Cell::of(l.tpot.p90, 2),
          Cell::of(l.tpot.p99, 2),
          s.drafts ? Cell::of(s.load.latency_ratio, 2) : Cell(),
          Cell::of(overload_of(s))};
}

std::vector<Column> goodput_columns() {
  return {
      {"ttft <=", "ttft_limit", "limit of a request's time to its first token, seconds"},
      {"tpot <=", "tpot_limit", "limit of its time per token after its first round, seconds"},
      {"within [95 %]", "within",
       "share of all requests that met both limits; its interval needs a share from .1 to .9, since near none and all "
       "few alternations cannot tell how it varies",
       Kind::interval},
      {"goodput [95 %]", "goodput", "requests per second that met both limits; its interval needs a share of .3",
       Kind::interval}};
}

std::vector<Cell> goodput_cells(const LoadedSide& s) {
  const auto limit = [](const std::optional<double>& seconds) {
    return seconds ? Cell::of(*seconds, 3) : Cell::of("-");
  };
  return {limit(s.load.ttft_limit), limit(s.load.tpot_limit), Cell::of(s.figures.within, 3),
          Cell::of(s.figures.goodput, 2)};
}

bool rate_is_axis(const View& view) {
  return std::ranges::any_of(view.axes.columns(), [](const Axis& axis) { return axis.pointer == kRate; });
}

// The axes, the rate if it is none of them, and the side; then `columns`. Two rows for each run that `wanted` takes.
template <class Wanted, class Cells>
Table two_sides(const View& view, const std::vector<Column>& columns, const Wanted& wanted, const Cells& cells) {
  Table table;
  table.columns = view.columns();
  const bool rate = !rate_is_axis(view);
  if (rate) table.columns.push_back({"rate", "rate", "requests per second that arrive"});
  table.columns.push_back({"side", "side", "with speculation, or plain decoding", Kind::text});
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    const Summary& s = view.cells[i];
    if (s.failed() || !s.load || !wanted(*s.load)) continue;
    for (const bool drafts : {false, true}) {
      Row row = view.start(i);
      row.rule_before = row.rule_before && !drafts && !table.rows.empty();
      if (rate) row.add({Cell::of(s.load->rate, 2)});
      row.add({Cell::of(drafts ? "drafts" : "plain")});
      const SideFigures& side = drafts ? s.speculative : s.baseline;
      row.add(cells({*s.load, drafts ? s.load->speculative : s.load->baseline, side.latency, drafts}));
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

Table curve_table(const View& view) {
  Table table = two_sides(view, curve_columns(), [](const Load&) { return true; }, curve_cells);
  table.title = "Open loop: throughput and latency, milliseconds";
  table.note =
      "Requests arrive at a rate, at the same times for both sides (Poisson), and latencies count from the arrival. "
      "Tokens per second cannot exceed what arrives, so their ratio would be no speedup: speculation shows in "
      "latencies, "
      "and in the rate that can be served.";
  return table;
}

Table goodput_table(const View& view) {
  std::vector<Column> columns = goodput_columns();
  columns.push_back({"notes", "notes", "", Kind::text});
  Table table = two_sides(
      view, columns, [](const Load& load) { return load.limited(); },
      [](const LoadedSide& side) {
        std::vector<Cell> cells = goodput_cells(side);
        cells.push_back(Cell::of(overload_of(side)));
        return cells;
      });
  table.title = "Open loop: goodput";
  return table;
}

// The greatest rate below which no measured one misses the share; NaN: the least one misses it.
double attained(const std::vector<const Load*>& by_rate, LoadFigures Load::* side) {
  double found = std::nan("");
  for (const Load* load : by_rate) {
    if ((load->*side).within.value < kAttained) break;
    found = load->rate;
  }
  return found;
}

// Of runs that differ only in their rate, the greatest one that is served within the limits.
Table attained_table(const View& view) {
  Table table;
  table.title = "Open loop: the greatest measured rate with 90 % of requests within their limits";
  std::vector<std::size_t> others;
  const std::vector<Column> columns = view.columns();
  for (std::size_t i = 0; i < view.axes.columns().size(); ++i)
    if (view.axes.columns()[i].pointer != kRate) others.push_back(i), table.columns.push_back(columns[i]);
  if (others.size() == view.axes.columns().size()) return table;  // one rate is no curve
  table.columns.push_back({"rate plain", "baseline_attained_rate",
                           "DistServe's goodput, of the rates that were measured; -: the least one misses it"});
  table.columns.push_back({"rate drafts", "attained_rate", "the same with speculation"});
  std::vector<bool> seen(view.cells.size());
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    std::vector<const Load*> by_rate;
    for (std::size_t j = i; j < view.cells.size(); ++j) {
      const Summary& s = view.cells[j];
      if (seen[j] || s.failed() || !s.load || !s.load->limited()) continue;
      if (view.equal(i, j, others)) seen[j] = true, by_rate.push_back(&*s.load);
    }
    if (by_rate.size() < 2) continue;
    std::ranges::sort(by_rate, {}, [](const Load* load) { return load->rate; });
    Row row;
    for (const std::size_t axis : others) row.cells.push_back(view.cell(axis, i));
    row.add({Cell::of(attained(by_rate, &Load::baseline), 2), Cell::of(attained(by_rate, &Load::speculative), 2)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::vector<Table> load_tables(const View& view) {
  return {curve_table(view), goodput_table(view), attained_table(view)};
}

Table every_load_table(const View& view) {
  std::vector<Column> columns = curve_columns();
  const std::vector<Column> more = goodput_columns();
  columns.insert(columns.end(), more.begin(), more.end());
  return two_sides(
      view, columns, [](const Load&) { return true; },
      [](const LoadedSide& side) {
        std::vector<Cell> cells = curve_cells(side);
        for (Cell& cell : goodput_cells(side)) cells.push_back(std::move(cell));
        return cells;
      });
}

}  // namespace foretoken

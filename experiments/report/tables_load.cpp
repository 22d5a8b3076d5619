// Tables of open loops: throughput and latency over the rate at which requests arrive, and goodput.
#include <algorithm>
#include <cmath>

#include "experiments/report/tables.h"

namespace foretoken {
namespace {

using Kind = Column::Kind;

constexpr const char *kRate = "/workload/rate", *kRates = "/workload/rates";
constexpr double kAttained = 0.9;  // the share of requests within their limits that a served rate has, as DistServe

// One side of a run with a rate.
struct LoadedSide {
  const Load& load;
  const LoadFigures& figures;
  const LatencyFigures& latency;
  bool drafts;
};

const std::vector<Column> kCurve = {
    {"served", "served",
     "requests per second until the last one ended, a little after the last arrival; those that were drawn arrive "
     "at the rate on average"},
    {"tok/s", "tokens_per_second", ""},
    {"busy %", "busy_percent", "share of that time in which a request was running"},
    {"full", "capacity", "requests per second while all slots of the batch were taken: what can be served"},
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
     "overload: while all slots were taken fewer requests ended than arrive, and some had no slot when the "
     "last one arrived: the queue grows as long as requests arrive, and so do latencies",
     Kind::text}};

const std::vector<Column> kGoodput = {
    {"ttft <=", "ttft_limit", "limit of a request's time to its first token, seconds"},
    {"tpot <=", "tpot_limit", "limit of its time per token after its first round, seconds"},
    {"within [95 %]", "within",
     "share of all requests that met both limits; its interval needs a share from .1 to .9, since near none and all "
     "few alternations cannot tell how it varies",
     Kind::interval},
    {"goodput [95 %]", "goodput", "requests per second that met both limits; its interval needs a share of .3",
     Kind::interval}};

Cell overload(const LoadedSide& side) { return Cell::of(side.figures.overloaded ? "overload" : ""); }

std::vector<Cell> curve_cells(const LoadedSide& s) {
  const auto& [ttft, tpot, gap, whole] = s.latency;
  return {Cell::of(s.figures.served, 2),
          Cell::of(s.figures.tokens_per_second.value, 1),
          Cell::of(100 * s.figures.busy, 0),
          Cell::of(s.figures.capacity, 2),
          Cell::of(ttft.p50, 1),
          Cell::of(ttft.p90, 1),
          Cell::of(ttft.p99, 1),
          Cell::of(tpot.p50, 2),
          Cell::of(tpot.p90, 2),
          Cell::of(tpot.p99, 2),
          s.drafts ? Cell::of(s.load.latency_ratio, 2) : Cell(),
          overload(s)};
}

std::vector<Cell> goodput_cells(const LoadedSide& s) {
  const auto limit = [](const std::optional<double>& seconds) {
    return seconds ? Cell::of(*seconds, 3) : Cell::of("-");
  };
  return {limit(s.load.ttft_limit), limit(s.load.tpot_limit), Cell::of(s.figures.within, 3),
          Cell::of(s.figures.goodput, 2)};
}

template <class T> std::vector<T> both(std::vector<T> first, const std::vector<T>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// The axes, the rate and rates if they are none of them, and the side; then `columns`. Two rows for each run, of those
// with limits where the table is of goodput alone.
template <class Cells> Table two_sides(const View& view, const std::string& title, const std::vector<Column>& columns,
                                       bool limited, const Cells& cells) {
  std::vector<Column> opening = {{"side", "side", "with speculation, or plain decoding", Kind::text}};
  const auto lacks = [&](const char* pointer) {
    return std::ranges::find(view.axes.columns(), pointer, &Axis::pointer) == view.axes.columns().end();
  };
  const bool varies = std::ranges::any_of(view.cells, [](const Summary& s) { return s.load && s.load->varies(); }),
             rate = lacks(kRate), rates = varies && lacks(kRates);
  if (rate)
    opening.insert(opening.begin(), {"rate", "rate", "requests per second that arrive, of several rates their mean"});
  if (rates)
    opening.insert(opening.begin(), {"rates", "rates",
                                     "of a load that rises and falls: seconds and requests per "
                                     "second of each of its pieces, which repeat",
                                     Kind::text});
  return table_of(view, title, both(opening, columns), [&](const Summary& s) {
    CellRows rows;
    for (const bool drafts : {false, true}) {
      if (!s.load || (limited && !s.load->limited())) break;
      std::vector<Cell> side = {Cell::of(drafts ? "drafts" : "plain")};
      if (rate) side.insert(side.begin(), Cell::of(s.load->rate, 2));
      if (rates) side.insert(side.begin(), Cell::of(s.load->varies() ? told(s.run(), kRates).dump() : "-"));
      rows.push_back(both(side, cells({*s.load, drafts ? s.load->speculative : s.load->baseline,
                                       (drafts ? s.speculative : s.baseline).latency, drafts})));
    }
    return rows;
  });
}

Table curve_table(const View& view) {
  Table table = two_sides(view, "Open loop: throughput and latency, milliseconds", kCurve, false, curve_cells);
  table.note =
      "Requests arrive at a rate, at the same times for both sides (Poisson), and latencies count from the arrival. "
      "Tokens per second cannot exceed what arrives, so their ratio would be no speedup: speculation shows in "
      "latencies, and in the rate that can be served.";
  return table;
}

Table goodput_table(const View& view) {
  return two_sides(view, "Open loop: goodput", both(kGoodput, {{"notes", "notes", "", Kind::text}}), true,
                   [](const LoadedSide& side) { return both(goodput_cells(side), {overload(side)}); });
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
  std::vector<std::size_t> others = view.axes.all();
  std::erase_if(others, [&](std::size_t axis) { return view.axes.columns()[axis].pointer == kRate; });
  if (others.size() == view.axes.columns().size()) return table;  // one rate is no curve
  const std::vector<Column> columns = view.columns();
  for (const std::size_t axis : others) table.columns.push_back(columns[axis]);
  table.columns.push_back({"rate plain", "baseline_attained_rate",
                           "DistServe's goodput, of the rates that were measured; -: the least one misses it"});
  table.columns.push_back({"rate drafts", "attained_rate", "the same with speculation"});
  for (const std::vector<std::size_t>& group : view.groups(others)) {
    std::vector<const Load*> by_rate;
    for (const std::size_t i : group)
      if (const Summary& s = view.cells[i]; !s.failed() && s.load && s.load->limited() && !s.load->varies())
        by_rate.push_back(&*s.load);
    if (by_rate.size() < 2) continue;  // a load that rises and falls is no point of the curve
    std::ranges::sort(by_rate, {}, [](const Load* load) { return load->rate; });
    Row& row = table.rows.emplace_back();
    for (const std::size_t axis : others) row.cells.push_back(view.cell(axis, group[0]));
    row.add({Cell::of(attained(by_rate, &Load::baseline), 2), Cell::of(attained(by_rate, &Load::speculative), 2)});
  }
  return table;
}

}  // namespace

std::vector<Table> load_tables(const View& view) {
  return {curve_table(view), goodput_table(view), attained_table(view)};
}

Table every_load_table(const View& view) {
  return two_sides(view, "", both(kCurve, kGoodput), false,
                   [](const LoadedSide& side) { return both(curve_cells(side), goodput_cells(side)); });
}

}  // namespace foretoken

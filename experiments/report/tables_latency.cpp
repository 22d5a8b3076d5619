// The table of what requests waited for.
#include "experiments/report/tables.h"

namespace foretoken {

using Kind = Column::Kind;

Table latency_table(const View& view) {
  Table table;
  table.title = "Latency, milliseconds";
  table.columns = view.columns();
  const std::vector<Column> columns = {
      {"side", "side", "with speculation, or plain decoding", Kind::text},
      {"ttft 50", "ttft_p50",
       "from a request's arrival (in a closed loop: when a place is free) to its first token: what 50, 90, 99 of 100 "
       "do not exceed"},
      {"90", "ttft_p90", ""},
      {"99", "ttft_p99", ""},
      {"tpot 50", "tpot_p50", "a request's time after its first round / the tokens after it"},
      {"99", "tpot_p99", ""},
      {"gap 50", "gap_p50", "between the rounds of a request, which deliver one or more tokens; within 1 %"},
      {"90", "gap_p90", ""},
      {"99", "gap_p99", ""},
      {"whole 50", "whole_p50", "from a request's arrival to its end"},
      {"99", "whole_p99", ""}};
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    if (view.cells[i].failed()) continue;
    for (const auto& [name, side] :
         {std::pair("plain", &view.cells[i].baseline), std::pair("drafts", &view.cells[i].speculative)}) {
      const LatencyFigures& l = side->latency;
      Row row = view.start(i);
      row.rule_before = row.rule_before && side == &view.cells[i].baseline;
      row.add({Cell::of(name), Cell::of(l.ttft.p50, 1), Cell::of(l.ttft.p90, 1), Cell::of(l.ttft.p99, 1),
               Cell::of(l.tpot.p50, 2), Cell::of(l.tpot.p99, 2), Cell::of(l.gap.p50, 2), Cell::of(l.gap.p90, 2),
               Cell::of(l.gap.p99, 2), Cell::of(l.whole.p50, 0), Cell::of(l.whole.p99, 0)});
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace foretoken

// Two sets of results, run by run.
#include <algorithm>
#include <cmath>

#include "experiments/report/matched_runs.h"
#include "experiments/report/tables.h"
#include "experiments/report/terminal.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Kind = Column::Kind;

struct Figure {
  const char* name;
  Interval Summary::* interval;
  int digits;
};

constexpr Figure kFigures[] = {{"tokens_per_second", &Summary::tokens_per_second, 1},
                               {"speedup", &Summary::speedup, 2},
                               {"tau", &Summary::tau, 2},
                               {"alpha", &Summary::alpha, 2}};

// Whether the bounds of both intervals are known.
bool comparable(const Interval& a, const Interval& b) { return a.bounded() && b.bounded(); }

// -1, 0, 1: B's interval lies below A's, overlaps it, lies above it. 0 if either is unknown.
int clear_difference(const Interval& a, const Interval& b) {
  if (!comparable(a, b) || a.overlaps(b)) return 0;
  return b.value > a.value ? 1 : -1;
}

std::string failure(const RunPair& pair) {
  if (pair.a->failed() && pair.b->failed()) return "failed on both sides: " + pair.b->error;
  return pair.a->failed() ? "failed in A: " + pair.a->error : pair.b->failed() ? "failed in B: " + pair.b->error : "";
}

// "exact", or "exact/lossy" if the sides differ.
std::string promises(const RunPair& pair) {
  const std::string a = kind_of(pair.a->promise), b = kind_of(pair.b->promise);
  return a == b ? a : a + "/" + b;
}

void add_figures(const RunPair& pair, Row& row) {
  for (const Figure& figure : kFigures) {
    const Interval &a = pair.a->*figure.interval, &b = pair.b->*figure.interval;
    const int clear = clear_difference(a, b);
    row.cells.push_back(Cell::of(a, figure.digits));
    row.cells.push_back(Cell::of(b, figure.digits, clear > 0 ? "↑" : clear < 0 ? "↓" : " "));
  }
}

// Where a side says what memory it took.
void add_memory(const std::vector<RunPair>& pairs, Table& table) {
  const auto megabytes = [](const Summary* side) { return side->speculative.memory.total() / 1e6; };
  const auto known = [&](const RunPair& p) { return std::isfinite(megabytes(p.a)) || std::isfinite(megabytes(p.b)); };
  if (std::ranges::none_of(pairs, known)) return;
  table.columns.push_back({"MB A", "memory_mb_a", "10^6 bytes of weights, caches and scratch"});
  table.columns.push_back({"B", "memory_mb_b", ""});
  for (std::size_t i = 0; i < pairs.size(); ++i)
    if (Row& row = table.rows[i]; row.sentence.empty())
      for (const Summary* side : {pairs[i].a, pairs[i].b}) row.cells.push_back(Cell::of(megabytes(side), 1));
}

Table pairs_table(const MatchedRuns& matching, const Axes& axes, const std::vector<RunPair>& pairs) {
  Table table;
  table.title = "A and B, run by run";
  table.columns = axes.table_columns();
  const std::vector<Column> columns = {
      {"tok/s A", "tokens_per_second_a", "tokens per second end to end", Kind::interval},
      {"B", "tokens_per_second_b", "the same in B; ↑ ↓ where the 95 % intervals of A and B do not overlap",
       Kind::interval},
      {"speedup A", "speedup_a", "tok/s over the baseline's, with its 95 % interval", Kind::interval},
      {"B", "speedup_b", "", Kind::interval},
      {"tau A", "tau_a", "tokens emitted per target forward", Kind::interval},
      {"B", "tau_b", "", Kind::interval},
      {"alpha A", "alpha_a", "accepted / tested draft tokens", Kind::interval},
      {"B", "alpha_b", "", Kind::interval}};
  const bool mixed =
      std::ranges::any_of(pairs, [&](const RunPair& p) { return promises(p) != kind_of(pairs[0].a->promise); });
  if (mixed) table.columns.push_back({"output", "promise", "what the verifiers of A and B promise", Kind::text});
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  const bool incomplete =
      std::ranges::any_of(pairs, [](const RunPair& p) { return p.a->failed_requests > 0 || p.b->failed_requests > 0; });
  if (incomplete) {
    table.columns.push_back({"failed A", "failed_requests_a", "requests that failed; their prompts are left out"});
    table.columns.push_back({"B", "failed_requests_b", ""});
  }
  for (const RunPair& pair : pairs) {
    Row row{axes.cells(pair.a->run()), failure(pair), false};
    if (mixed) row.cells.push_back(Cell::of(promises(pair)));
    if (row.sentence.empty()) add_figures(pair, row);
    if (incomplete && row.sentence.empty())
      for (const Summary* side : {pair.a, pair.b}) row.cells.push_back(Cell::of(side->failed_requests, 0));
    table.rows.push_back(std::move(row));
  }
  add_memory(pairs, table);
  const std::size_t alone = matching.only_a.size() + matching.only_b.size();
  if (table.rows.empty() && alone)
    table.note = matching.apart.empty() ? "No run is on both sides."
                                        : "No run is on both sides: all differ in " + matching.apart +
                                              "; --ignore compares them anyway, if that makes sense.";
  return table;
}

// In tables for people, only speedups have intervals.
void narrow(Table& table) {
  for (Row& row : table.rows)
    for (std::size_t i = 0; i < row.cells.size(); ++i)
      if (Cell& cell = row.cells[i]; cell.kind == Cell::Kind::interval && !table.columns[i].name.starts_with("speedup"))
        cell = Cell::of(cell.interval.value, cell.digits, cell.mark);
}

std::string verdict(const std::vector<RunPair>& pairs) {
  int faster = 0, slower = 0, same = 0, open = 0, failed = 0;
  for (const RunPair& pair : pairs) {
    if (!failure(pair).empty()) {
      ++failed;
      continue;
    }
    const Interval &a = pair.a->speedup, &b = pair.b->speedup;
    const int clear = clear_difference(a, b);
    ++(!comparable(a, b) ? open : clear > 0 ? faster : clear < 0 ? slower : same);
  }
  return std::to_string(pairs.size()) + (pairs.size() == 1 ? " run" : " runs") +
         " on both sides: speedup clearly higher in B " + std::to_string(faster) + ", clearly lower " +
         std::to_string(slower) + ", intervals overlap " + std::to_string(same) +
         (open ? ", no interval on one side " + std::to_string(open) : "") +
         (failed ? ", failed " + std::to_string(failed) : "") + ".";
}

std::string origin_of(const std::vector<Summary>& side) {
  const View view = View::of(side);
  const std::string models = view.models();
  return view.origin() + (models.empty() ? "" : " " + models + ".");
}

std::string people(const MatchedRuns& matching, const Axes& axes, Table table, const CompareOptions& options) {
  const bool markdown = options.format == "markdown";
  const std::string end = markdown ? "\n\n" : "\n", item = markdown ? "- " : "  ";
  std::string found;
  if (!matching.a.empty()) found += one_line("A: " + options.name_a + ", " + origin_of(matching.a)) + end;
  if (!matching.b.empty()) found += one_line("B: " + options.name_b + ", " + origin_of(matching.b)) + end;
  narrow(table);
  found += verdict(matching.pairs) + end;
  for (const std::string& pointer : matching.younger)
    found += "Not counted, since one side does not know it: " + one_line(pointer) + end;
  found += (markdown ? "" : "\n") + (markdown ? table.markdown() : table.terminal(options.width)) + "\n";
  for (const auto& [alone, side] :
       {std::pair(&matching.only_a, "Only in A:"), std::pair(&matching.only_b, "Only in B:")}) {
    if (alone->empty()) continue;
    found += side + end;
    for (const Summary* summary : *alone) found += item + one_line(axes.label(summary->run())) + "\n";
    found += "\n";
  }
  return found + legend({table}, options.width, markdown);
}

json side_json(const std::vector<const Summary*>& alone) {
  json found = json::array();
  for (const Summary* summary : alone)
    found.push_back({{"key", summary->line.value("key", "")}, {"run", summary->run()}});
  return found;
}

std::string programs(const MatchedRuns& matching, const std::vector<RunPair>& pairs) {
  json matched = json::array();
  for (const RunPair& pair : pairs) {
    json one = {
        {"key_a", pair.a->line.value("key", "")}, {"key_b", pair.b->line.value("key", "")}, {"run", pair.b->run()}};
    if (!failure(pair).empty()) one["error"] = failure(pair);
    if (pair.a->failed_requests > 0 || pair.b->failed_requests > 0)
      one["failed_requests"] = {{"a", pair.a->failed_requests}, {"b", pair.b->failed_requests}};
    if (failure(pair).empty()) {
      one["memory"] = {{"a", to_json(pair.a->speculative.memory)}, {"b", to_json(pair.b->speculative.memory)}};
      for (const Figure& figure : kFigures) {
        const Interval &a = pair.a->*figure.interval, &b = pair.b->*figure.interval;
        const bool known = a.known() && b.known();
        one[figure.name] = {{"a", to_json(a)},
                            {"b", to_json(b)},
                            {"ratio", known && a.value != 0 ? json(b.value / a.value) : json()},
                            {"overlap", comparable(a, b) ? json(a.overlaps(b)) : json()}};
      }
    }
    matched.push_back(std::move(one));
  }
  return json{{"schema", 1},
              {"matched", matched},
              {"only_a", side_json(matching.only_a)},
              {"only_b", side_json(matching.only_b)},
              {"not_counted", matching.younger}}
             .dump(1) +
         "\n";
}

std::string comparison(const std::vector<json>& a, const std::vector<json>& b, const CompareOptions& options) {
  if (options.format != "terminal" && options.format != "markdown" && options.format != "csv" &&
      options.format != "json")
    throw Error("unknown format '" + options.format + "': there are terminal, markdown, csv, json");
  if (a.empty() && b.empty())
    throw Error("there is nothing to compare: neither " + options.name_a + " nor " + options.name_b +
                " holds a result");
  const MatchedRuns matching = match_runs(a, b, options);
  std::vector<json> both;
  for (const RunPair& pair : matching.pairs) both.push_back(pair.a->run());
  const Axes axes(matching.documents, {});
  std::vector<RunPair> pairs;
  for (const std::size_t i : axes.order(both)) pairs.push_back(matching.pairs[i]);
  if (options.format == "json") return programs(matching, pairs);
  Table table = pairs_table(matching, axes, pairs);
  return options.format == "csv" ? table.csv() : people(matching, axes, std::move(table), options);
}

}  // namespace

std::string compare(const std::vector<json>& a, const std::vector<json>& b, const CompareOptions& options) {
  return of_lines([&] { return comparison(a, b, options); });
}

}  // namespace foretoken

// Two sets of results, run by run.
#include <algorithm>
#include <map>
#include <set>

#include "experiments/report/report.h"
#include "experiments/report/tables.h"
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

using Fields = std::map<std::string, json>;  // the leaves of a run by their pointers

bool within(const std::string& pointer, const std::string& parent) {
  return pointer == parent || pointer.starts_with(parent + "/");
}

std::vector<Fields> fields_of(const std::vector<Summary>& side, const std::vector<std::string>& ignored) {
  std::vector<Fields> found;
  for (const Summary& summary : side) {
    const json leaves = summary.run().flatten();
    found.emplace_back();
    for (const auto& [pointer, value] : leaves.items())
      if (std::ranges::none_of(ignored, [&p = pointer](const std::string& parent) { return within(p, parent); }))
        found.back()[pointer] = value;
  }
  return found;
}

bool all_differ(const std::vector<Fields>& runs) {
  return std::set<Fields>(runs.begin(), runs.end()).size() == runs.size();
}

// Fields that one side has nowhere, nor anything in their place (a list for an empty one, an object for a text):
// options younger than its results. Empty where runs would no longer be told apart.
std::vector<std::string> one_sided(const std::vector<Summary>& a, const std::vector<Summary>& b,
                                   const std::vector<std::string>& ignored) {
  std::map<std::string, int> sides;
  for (const Fields& run : fields_of(a, ignored))
    for (const auto& [pointer, value] : run) sides[pointer] |= 1;
  for (const Fields& run : fields_of(b, ignored))
    for (const auto& [pointer, value] : run) sides[pointer] |= 2;
  std::vector<std::string> found, all = ignored;
  for (const auto& [pointer, seen] : sides) {
    const bool in_place = std::ranges::any_of(sides, [&, &p = pointer, &s = seen](const auto& other) {
      return (other.second & ~s) && (within(p, other.first) || within(other.first, p));
    });
    if (seen != 3 && !in_place) found.push_back(pointer);
  }
  all.insert(all.end(), found.begin(), found.end());
  if (!all_differ(fields_of(a, all)) || !all_differ(fields_of(b, all))) return {};
  return found;
}

// Fields of which no value is on both sides: because of them no run is.
std::string differing_everywhere(const std::vector<Fields>& a, const std::vector<Fields>& b) {
  std::map<std::string, std::pair<std::set<json>, std::set<json>>> values;
  for (const Fields& run : a)
    for (const auto& [pointer, value] : run) values[pointer].first.insert(value);
  for (const Fields& run : b)
    for (const auto& [pointer, value] : run) values[pointer].second.insert(value);
  std::string found;
  for (const auto& [pointer, sides] : values)
    if (std::ranges::none_of(sides.first, [&s = sides](const json& value) { return s.second.contains(value); }))
      found += (found.empty() ? "" : ",") + pointer;
  return found;
}

struct Pair {
  const Summary *a, *b;
};

struct Matching {
  std::vector<Summary> a, b;
  std::vector<Pair> pairs;
  std::vector<const Summary*> only_a, only_b;
  std::vector<std::string> younger;  // ignored because one side has them nowhere
  std::string apart;                 // where no run matches: fields that differ everywhere
  std::vector<json> documents;       // all runs, without what is ignored
};

Matching match(const std::vector<json>& lines_a, const std::vector<json>& lines_b, const CompareOptions& options) {
  Matching found{summarize(lines_a), summarize(lines_b), {}, {}, {}, {}, {}, {}};
  std::vector<std::string> ignored = {"/measure"};
  for (const std::string& pointer : options.ignore) {
    if (!pointer.starts_with('/'))
      throw Error("'" + pointer + "' is no JSON pointer: write what to ignore as /engine/device");
    ignored.push_back(pointer);
  }
  for (const auto* side : {&found.a, &found.b})
    if (!all_differ(fields_of(*side, ignored)))
      throw Error("two runs of " + (side == &found.a ? options.name_a : options.name_b) +
                  " differ only in what is ignored; ignore less");
  found.younger = one_sided(found.a, found.b, ignored);
  ignored.insert(ignored.end(), found.younger.begin(), found.younger.end());
  std::vector<Fields> fields_a = fields_of(found.a, ignored), fields_b = fields_of(found.b, ignored);
  for (const auto* side : {&fields_a, &fields_b})
    for (const Fields& fields : *side) found.documents.push_back(json(fields).unflatten());
  std::set<std::size_t> taken;
  for (std::size_t i = 0; i < found.a.size(); ++i) {
    const auto same = std::ranges::find(fields_b, fields_a[i]);
    if (same == fields_b.end()) {
      found.only_a.push_back(&found.a[i]);
      continue;
    }
    taken.insert(same - fields_b.begin());
    found.pairs.push_back({&found.a[i], &found.b[same - fields_b.begin()]});
  }
  for (std::size_t i = 0; i < found.b.size(); ++i)
    if (!taken.contains(i)) found.only_b.push_back(&found.b[i]);
  if (found.pairs.empty() && !fields_a.empty() && !fields_b.empty())
    found.apart = differing_everywhere(fields_a, fields_b);
  return found;
}

// Whether it can be said that two intervals overlap, or do not.
bool comparable(const Interval& a, const Interval& b) { return a.bounded() && b.bounded(); }

// -1, 0, 1: B's interval lies below A's, overlaps it, lies above it. What is unknown differs from nothing.
int clear_difference(const Interval& a, const Interval& b) {
  if (!comparable(a, b) || a.overlaps(b)) return 0;
  return b.value > a.value ? 1 : -1;
}

std::string failure(const Pair& pair) {
  if (pair.a->failed() && pair.b->failed()) return "failed on both sides: " + pair.b->error;
  return pair.a->failed() ? "failed in A: " + pair.a->error : pair.b->failed() ? "failed in B: " + pair.b->error : "";
}

// "exact", or "exact/lossy" where the sides differ.
std::string promises(const Pair& pair) {
  const std::string a = kind_of(pair.a->promise), b = kind_of(pair.b->promise);
  return a == b ? a : a + "/" + b;
}

Table pairs_table(const Matching& matching, const Axes& axes, const std::vector<Pair>& pairs) {
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
      std::ranges::any_of(pairs, [&](const Pair& p) { return promises(p) != kind_of(pairs[0].a->promise); });
  if (mixed) table.columns.push_back({"output", "promise", "what the verifiers of A and B promise", Kind::text});
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  for (const Pair& pair : pairs) {
    Row row{axes.cells(pair.a->run()), failure(pair), false};
    if (mixed) row.cells.push_back(Cell::of(promises(pair)));
    if (row.sentence.empty())
      for (const Figure& figure : kFigures) {
        const Interval &a = pair.a->*figure.interval, &b = pair.b->*figure.interval;
        const int clear = clear_difference(a, b);
        row.cells.push_back(Cell::of(a, figure.digits));
        row.cells.push_back(Cell::of(b, figure.digits, clear > 0 ? "↑" : clear < 0 ? "↓" : " "));
      }
    table.rows.push_back(std::move(row));
  }
  const std::size_t alone = matching.only_a.size() + matching.only_b.size();
  if (table.rows.empty() && alone)
    table.note = matching.apart.empty() ? "No run is on both sides."
                                        : "No run is on both sides: all differ in " + matching.apart +
                                              "; --ignore compares them all the same, where that makes sense.";
  return table;
}

// Where people read, only speedups keep their intervals beside them.
void narrow(Table& table) {
  for (Row& row : table.rows)
    for (std::size_t i = 0; i < row.cells.size(); ++i)
      if (Cell& cell = row.cells[i]; cell.kind == Cell::Kind::interval && !table.columns[i].name.starts_with("speedup"))
        cell = Cell::of(cell.interval.value, cell.digits, cell.mark);
}

std::string verdict(const std::vector<Pair>& pairs) {
  int faster = 0, slower = 0, same = 0, open = 0, failed = 0;
  for (const Pair& pair : pairs) {
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

std::string people(const Matching& matching, const Axes& axes, Table table, const CompareOptions& options) {
  const bool markdown = options.format == "markdown";
  const std::string end = markdown ? "\n\n" : "\n", item = markdown ? "- " : "  ";
  std::string found;
  if (!matching.a.empty()) found += "A: " + options.name_a + ", " + origin_of(matching.a) + end;
  if (!matching.b.empty()) found += "B: " + options.name_b + ", " + origin_of(matching.b) + end;
  narrow(table);
  found += verdict(matching.pairs) + end;
  for (const std::string& pointer : matching.younger)
    found += "Not counted, since one side does not know it: " + pointer + end;
  found += (markdown ? "" : "\n") + (markdown ? table.markdown() : table.terminal(options.width)) + "\n";
  for (const auto& [alone, side] :
       {std::pair(&matching.only_a, "Only in A:"), std::pair(&matching.only_b, "Only in B:")}) {
    if (alone->empty()) continue;
    found += side + end;
    for (const Summary* summary : *alone) found += item + axes.label(summary->run()) + "\n";
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

std::string programs(const Matching& matching, const std::vector<Pair>& pairs) {
  json matched = json::array();
  for (const Pair& pair : pairs) {
    json one = {
        {"key_a", pair.a->line.value("key", "")}, {"key_b", pair.b->line.value("key", "")}, {"run", pair.b->run()}};
    if (!failure(pair).empty()) one["error"] = failure(pair);
    if (failure(pair).empty())
      for (const Figure& figure : kFigures) {
        const Interval &a = pair.a->*figure.interval, &b = pair.b->*figure.interval;
        const bool known = a.known() && b.known();
        one[figure.name] = {{"a", to_json(a)},
                            {"b", to_json(b)},
                            {"ratio", known && a.value != 0 ? json(b.value / a.value) : json()},
                            {"overlap", comparable(a, b) ? json(a.overlaps(b)) : json()}};
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
  const Matching matching = match(a, b, options);
  std::vector<json> both;
  for (const Pair& pair : matching.pairs) both.push_back(pair.a->run());
  const Axes axes(matching.documents, {});
  std::vector<Pair> pairs;
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

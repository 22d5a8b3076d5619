#include "experiments/report/tables.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "experiments/report/notes.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Kind = Column::Kind;

constexpr std::size_t kPositions = 12;  // shown side by side; CSV and JSON have all
constexpr const char* kNotFull = "~";

std::string theory_mark(const Summary& s) { return s.theory.full_length || s.theory.branched ? "" : kNotFull; }

// Of runs that differ only in their policy, the one that drafted the most positions. Drafts that another confidence
// ends are others: those that go on are the likely ones.
std::vector<std::size_t> longest_of(const View& view) {
  std::vector<std::size_t> found;
  const auto confidence = [&](std::size_t i) {
    return view.cells[i].run().value("/policy/confidence"_json_pointer, json());
  };
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    if (view.cells[i].positions.empty()) continue;
    const auto alike = [&](std::size_t j) {
      return view.equal(i, j, view.axes.outside_policy()) && confidence(i) == confidence(j);
    };
    const auto known = std::ranges::find_if(found, alike);
    if (known == found.end())
      found.push_back(i);
    else if (view.cells[i].positions.size() > view.cells[*known].positions.size())
      *known = i;
  }
  return found;
}

// An interval of which a terminal shows the value alone; the greatest of a group is best.
Column brief(const std::string& title, const std::string& name, const std::string& meaning, bool spare = false) {
  return {.title = title,
          .name = name,
          .meaning = meaning,
          .kind = Kind::interval,
          .brief = true,
          .spare = spare,
          .better = 1};
}
Column bounded(const std::string& title, const std::string& name, const std::string& meaning = "") {
  return {.title = title, .name = name, .meaning = meaning, .kind = Kind::interval, .better = 1};
}

Table main_table(const View& view) {
  const std::vector<Column> columns = {
      brief("alpha", "alpha", "accepted / tested draft tokens, up to the first rejection"),
      brief("accept", "accept_rate", "accepted / drafted tokens", true),
      brief("tau", "tau", "tokens emitted per target forward"),
      {.title = "theory",
       .name = "tau_theory",
       .meaning =
           "tau by alpha and the draft length g, if positions were independent: (1 - alpha^(g+1)) / (1 - alpha); "
           "~ where drafts are often shorter than g: 1 + sum over i of P(drafted >= i) alpha^i",
       .spare = true},
      brief("tok/s", "tokens_per_second", "tokens per second end to end, with speculation"),
      {.title = "plain",
       .name = "baseline_tokens_per_second",
       .meaning = "the same without speculation",
       .spare = true},
      brief("steady", "steady_speedup", "speedup while all slots of the batch were taken, without filling and draining",
            true),
      bounded("speedup [95 %]", "speedup",
              "tok/s over plain, with the interval of a bootstrap over prompts and alternations"),
      {.title = "notes", .name = "notes", .meaning = "promise of the output", .kind = Kind::text, .whole = true}};
  Notes notes;
  const auto cells = [&notes](const Summary& s) -> CellRows {
    if (s.failed()) return {{}};
    return {{Cell::of(s.alpha, 2), Cell::of(s.accept_rate, 2), Cell::of(s.tau, 2),
             Cell::of(s.theory.tau, 2, theory_mark(s)), Cell::of(s.tokens_per_second, 1),
             Cell::of(s.baseline.tokens_per_second, 1), Cell::of(s.steady_speedup, 2), Cell::of(s.speedup, 2),
             Cell::of(notes.of(s))}};
  };
  Table table = table_of(view, "Acceptance and speed", columns, cells, {.failed = true});
  table.columns.back().marks = notes.meanings();
  table.note = view.origin();
  return table;
}

Table theory_table(const View& view) {
  const std::vector<Column> columns = {
      bounded("alpha [95 %]", "alpha"),
      bounded("tau [95 %]", "tau"),
      {"theory", "tau_theory", ""},
      {"g", "mean_drafted", "tokens drafted per round, on average"},
      {"plain", "plain_ms", "milliseconds of a sequence's share of a forward: a round of plain decoding"},
      {"draft", "draft_ms", "the same of a drafted token"},
      {"verify", "verify_ms", "the same of a round's verification"},
      {"predict", "speedup_theory", "theory plain / (g draft + verify)"},
      {"speedup", "speedup", "measured, end to end"}};
  return table_of(view, "Theory beside measurement", columns, [](const Summary& s) -> CellRows {
    const TheoryFigures& t = s.theory;
    const std::string mark = theory_mark(s);
    return {{Cell::of(s.alpha, 2), Cell::of(s.tau, 2), Cell::of(t.tau, 2, mark), Cell::of(t.mean_drafted, 2),
             Cell::of(t.plain_ms, 2), Cell::of(t.draft_ms, 2), Cell::of(t.verify_ms, 2), Cell::of(t.speedup, 2, mark),
             Cell::of(s.speedup.value, 2)}};
  });
}

// accepted / tested, and accepted / rounds; of runs that differ only in their policy, the one with the longest drafts.
std::vector<Table> position_tables(const View& view) {
  const std::vector<std::size_t> longest = longest_of(view);
  std::size_t most = 0;
  for (const std::size_t i : longest) most = std::max(most, view.cells[i].positions.size());
  const std::string which = longest.size() < view.cells.size() ? " (each group's longest drafts)" : "",
                    above = most > kPositions
                                ? "Positions above " + std::to_string(kPositions) + " are in CSV and JSON."
                                : "";
  std::vector<Table> tables;
  if (most == 0) return tables;
  for (const bool rate : {true, false}) {
    Table& table = tables.emplace_back(Table{
        .title = "Acceptance by position: " +
                 std::string(rate ? "accepted / tested there" : "rounds that accepted this far / all rounds") + which,
        .note = above,
        .columns = view.columns(),
        .rows = {}});
    for (std::size_t i = 1; i <= std::min(most, kPositions); ++i)
      table.columns.push_back({std::to_string(i), "position_" + std::to_string(i), ""});
    for (const std::size_t i : longest) {
      Row& row = table.rows.emplace_back(view.start(i));
      row.rule_before = false;
      for (const PositionFigures& at : view.cells[i].positions)
        if (std::size_t(at.position) <= kPositions) row.add({Cell::of(rate ? at.rate : at.reached, 2)});
    }
  }
  return tables;
}

// One row per run and position.
Table every_position_table(const View& view) {
  std::vector<Column> columns;
  for (const char* name : {"position", "drafted", "tested", "accepted"}) columns.push_back({name, name, ""});
  columns.push_back({"rate", "rate", "", Kind::interval});
  columns.push_back({"reached", "reached", ""});
  return table_of(view, "Acceptance by position", columns, [](const Summary& s) {
    CellRows rows;
    for (const PositionFigures& at : s.positions)
      rows.push_back(
          {Cell::of(at.position, 0), Cell::of(at.drafted, 0), Cell::of(at.tested, 0), Cell::of(at.accepted, 0),
           Cell::of(Interval{at.rate, at.rate_interval.low, at.rate_interval.high}, 4), Cell::of(at.reached, 4)});
    return rows;
  });
}

// Milliseconds per step and their share of the step.
Cell part(double seconds, const SideFigures& side) {
  char share[16];
  std::snprintf(share, sizeof share, " %3.0f%%", 100 * seconds / side.phases.total);
  return Cell::of(1000 * seconds / side.steps, 2, share);
}

Table phase_table(const View& view) {
  const std::vector<Column> columns = {
      {"step ms", "step_ms",
       "milliseconds per step, for all requests of the batch; then its parts, and their share of it"},
      {"draft", "draft_ms", "drafters' forwards, distributions and draws"},
      {"target", "target_ms", "the target's forward"},
      {"verify", "verify_ms", "the target's distributions and the verifier"},
      {"host", "host_ms", "scheduling, bookkeeping and the rest"},
      {"over %", "overhead_percent", "share of the step outside forwards, per cent"},
      {"plain ms", "baseline_step_ms", "milliseconds per step of the baseline"},
      {"plain %", "baseline_overhead_percent", "its share outside forwards"}};
  Table table = table_of(view, "Time of a step", columns, [](const Summary& s) -> CellRows {
    const SideFigures &side = s.speculative, &plain = s.baseline;
    const Phases& p = side.phases;
    return {{Cell::of(1000 * p.total / side.steps, 2), part(draft_seconds(p), side), part(p.target_forward, side),
             part(p.verify, side), part(host_seconds(p), side), Cell::of(100 * side.overhead, 1),
             Cell::of(1000 * plain.phases.total / plain.steps, 2), Cell::of(100 * plain.overhead, 1)}};
  });
  if (const std::string note = failures_note(view.cells); !note.empty()) table.note = note.substr(1);
  return table;
}

// Runs whose lines say what memory they took.
Table memory_table(const View& view) {
  const std::vector<Column> columns = {
      {"target", "target_weights_mb", "weights of the target, its embedding included"},
      {"draft", "draft_weights_mb", "weights of the drafters' models"},
      {"cache", "cache_mb", "the pool of keys and values of all models"},
      {"used", "cache_used_mb", "the most of the pool that was in use"},
      {"scratch", "scratch_mb", "the most that a step held besides: activations, logits, distributions"},
      {"sum", "memory_mb", "target, draft, cache and scratch"},
      {"plain sum", "baseline_memory_mb", "the same of the baseline"}};
  return table_of(view, "Memory, 10^6 bytes", columns, [](const Summary& s) {
    const MemoryFigures& m = s.speculative.memory;
    CellRows rows;
    if (!std::isnan(m.target_weights)) rows.emplace_back();
    for (const double bytes :
         {m.target_weights, m.draft_weights, m.cache, m.cache_used, m.scratch, m.total(), s.baseline.memory.total()})
      if (!rows.empty()) rows[0].push_back(Cell::of(bytes / 1e6, 1));
    return rows;
  });
}

// What requests waited for.
Table latency_table(const View& view) {
  const std::vector<Column> columns = {
      {"side", "side", "with speculation, or plain decoding", Kind::text},
      {"ttft 50", "ttft_p50",
       "from a request's arrival (in a closed loop: when a slot is free) to its first token: what 50, 90, 99 of 100 "
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
  return table_of(view, "Latency, milliseconds", columns, [](const Summary& s) {
    CellRows rows;
    for (const auto& [name, side] : {std::pair("plain", &s.baseline), std::pair("drafts", &s.speculative)}) {
      const auto& [ttft, tpot, gap, whole] = side->latency;
      rows.push_back({Cell::of(name), Cell::of(ttft.p50, 1), Cell::of(ttft.p90, 1), Cell::of(ttft.p99, 1),
                      Cell::of(tpot.p50, 2), Cell::of(tpot.p99, 2), Cell::of(gap.p50, 2), Cell::of(gap.p90, 2),
                      Cell::of(gap.p99, 2), Cell::of(whole.p50, 0), Cell::of(whole.p99, 0)});
    }
    return rows;
  });
}

Table every_category_table(const View& view) { return category_table(view, false); }

template <Table (*table)(const View&)> std::vector<Table> alone(const View& view) { return {table(view)}; }

std::vector<Table> fastest_categories(const View& view) { return {category_table(view, true)}; }

// Without several lengths it has no content.
std::vector<Table> best_tables(const View& view) {
  return view.axes.of_policy().empty() ? std::vector<Table>{} : std::vector<Table>{best_table(view)};
}

}  // namespace

const std::vector<TableKind>& table_kinds() {
  static const std::vector<TableKind> kKinds = {{"main", alone<main_table>, figures_table},
                                                {"theory", alone<theory_table>, theory_table},
                                                {"positions", position_tables, every_position_table},
                                                {"categories", fastest_categories, every_category_table},
                                                {"load", load_tables, every_load_table},
                                                {"latency", alone<latency_table>, latency_table},
                                                {"phases", alone<phase_table>, phase_table},
                                                {"memory", alone<memory_table>, memory_table},
                                                {"best", best_tables, best_table}};
  return kKinds;
}

std::string failures_note(const std::vector<Summary>& cells) {
  int runs = 0, requests = 0;
  for (const Summary& s : cells) {
    if (s.left_out == 0) continue;
    ++runs;
    requests += s.failed_requests;
  }
  if (runs == 0) return "";
  return " " + std::to_string(requests) + (requests == 1 ? " request" : " requests") + " of " + std::to_string(runs) +
         (runs == 1 ? " run" : " runs") +
         " failed: the figures there are those of the other prompts, on both sides; times of steps and acceptance by "
         "position are not known.";
}

Table category_table(const View& view, bool fastest_alone) {
  std::set<const Summary*> fastest;
  for (const Best& best : best_of(view)) fastest.insert(&view.cells[best.cell]);
  const bool choice = fastest_alone && !view.axes.of_policy().empty();
  const std::vector<Column> columns = {
      {"category", "category", "", Kind::text}, {"prompts", "prompts", ""},
      bounded("alpha [95 %]", "alpha"),         bounded("tau [95 %]", "tau"),
      bounded("speedup [95 %]", "speedup"),     {"notes", "notes", "", Kind::text, true}};
  const auto cells = [&](const Summary& s) {
    CellRows rows;
    if (choice && !fastest.contains(&s)) return rows;
    for (const CategoryFigures& c : s.categories)
      rows.push_back({Cell::of(c.name), Cell::of(c.prompts, 0), Cell::of(c.alpha, 2), Cell::of(c.tau, 2),
                      Cell::of(c.speedup, 2), Cell::of(standing(c.speedup))});
    return rows;
  };
  return table_of(view, choice ? "By category (only each group's fastest row)" : "By category", columns, cells,
                  {.all_apart = true});
}

}  // namespace foretoken
